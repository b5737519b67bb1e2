#!/usr/bin/env python3
"""The command line as its users and scripts see it: exit codes, keys, messages, closed pipes.

Usage: test_cli.py BINARY [unittest options]"""

import csv
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BINARY = ""
TIMEOUT = 1500 if os.environ.get("ROOFLM_SANITIZER") else 300
SMALL = ["--model", "tiny", "--layers", "1", "--vocab", "256", "--batch", "1", "--seq", "16"]
PLAN = ["bench", "--device", "null"]
BENCH_KEYS = set(
    "model arch engine attention device dtype batch seq vocab layers heads d_model d_ff params warmup steps status "
    "tokens_per_s model_flops mfu peak_bytes kv_heads grad_accum recompute threads matmul_flops share_of_peak "
    "peak_flop_per_s plan_bytes state_bytes needed_bytes".split()
) | {f"{phase}_ms_{value}" for phase in ("forward", "backward", "optimizer", "step", "submit") for value in ("mean", "std", "median")}


def rooflm(*arguments, stdin="", environment=None):
    return subprocess.run([BINARY, *arguments], input=stdin, capture_output=True, text=True, timeout=TIMEOUT,
                          env=environment)


class CommandLine(unittest.TestCase):
    def ok(self, *arguments, **options):
        result = rooflm(*arguments, **options)
        self.assertEqual(result.returncode, 0, f"{arguments}: {result.stderr}")
        return result.stdout

    def fails(self, code, *arguments, says=(), **options):
        """One line on stderr that holds all of `says`, nothing on stdout, this exit code."""
        result = rooflm(*arguments, **options)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stderr}")
        lines = [line for line in result.stderr.splitlines() if line.startswith("rooflm: ")]
        self.assertEqual(len(lines), 1, result.stderr)
        for text in says:
            self.assertIn(text, lines[0])
        self.assertEqual(result.stdout, "")


class Basics(CommandLine):
    def test_help_and_version(self):
        self.assertRegex(self.ok("--version"), r"^rooflm \d+\.\d+\.\d+\n$")
        text = self.ok("--help")
        self.assertEqual(text, self.ok("help"))
        for command in ("bench", "program", "peaks", "data prepare", "info"):
            self.assertIn(command, text)
        self.assertIn("Exit codes", text)
        self.assertEqual(self.ok("help", "bench"), self.ok("bench", "--help"))
        self.assertIn("data tokenize", self.ok("data", "--help"))

    def test_every_command_has_help_with_an_example(self):
        commands = re.findall(r"^  ((?:data )?[a-z-]+) {2,}", self.ok("--help"), re.MULTILINE)
        self.assertGreaterEqual(len(commands), 5)
        for command in commands:
            text = self.ok(*command.split(), "--help")
            self.assertIn(f"rooflm {command}", text)
            self.assertIn("Example", text)

    def test_every_option_of_the_help_is_taken(self):
        """Each long option that --help prints is known: what is wrong is an option after it, so that nothing runs."""
        for command in ("bench", "program", "peaks", "info", "data prepare", "data tokenize"):
            options = set(re.findall(r"--[a-z][a-z0-9-]+", self.ok(*command.split(), "--help")))
            for option in options - {"--help"}:
                result = rooflm(*command.split(), option, "\x01/x", "--no-such-option")
                self.assertEqual(result.returncode, 2, (command, option))
                self.assertNotIn(f"unknown option '{option}'", result.stderr, command)

    def test_no_command_is_a_usage_error(self):
        result = rooflm()
        self.assertEqual(result.returncode, 2)
        self.assertIn("Usage", result.stderr)

    def test_unknown_names_get_suggestions(self):
        self.fails(2, "bnech", says=["unknown command 'bnech'", "did you mean 'bench'"])
        self.fails(2, "data", "prepair", says=["did you mean 'prepare'"])
        self.fails(2, "pro", says=["did you mean 'profile' or 'program'?"])
        self.fails(2, "com", says=["did you mean 'comm', 'compare' or 'completion'?"])
        self.fails(2, "bench", "--sqe", "128", says=["unknown option '--sqe'", "did you mean '--seq'"])
        self.fails(2, "bench", "--sqe=128", says=["did you mean '--seq'"])
        self.fails(2, *PLAN, "--model", "gtp2", says=["did you mean 'gpt2'"])
        self.fails(2, *PLAN, "--engine", "fusd", says=["did you mean 'fused'"])
        self.fails(2, *PLAN, "--attention", "flsh", says=["did you mean 'flash'"])
        self.fails(2, *PLAN, "--dtype", "fp33", says=["did you mean 'fp32'"])
        self.fails(2, *PLAN, "--recompute", "ful", says=["did you mean 'full'"])
        self.fails(2, *PLAN, "--arch", "lama", says=["did you mean 'llama'"])
        self.fails(2, "bench", "--device", "tpu", says=["unknown device 'tpu'"])
        self.fails(2, *PLAN, "--format", "jsn", says=["did you mean 'json'"])
        self.fails(2, "program", "--stage", "fusd", says=["did you mean 'fuse'"])

    def test_bad_values_are_refused_before_anything_runs(self):
        for option in ("--batch", "--seq", "--layers", "--heads", "--d-model", "--d-ff", "--vocab", "--kv-heads",
                       "--grad-accum", "--steps"):
            for value in ("0", "-1", "x", "1.5", "1,", "99999999999999999999"):
                self.fails(2, *PLAN, option, value, says=[option])
            self.fails(2, *PLAN, option, says=[option])
        self.fails(2, *PLAN, "--warmup", "-1", says=["--warmup"])
        self.fails(2, *PLAN, "--threads", "-1", says=["--threads"])
        self.fails(2, *PLAN, "--max-seconds", "soon", says=["--max-seconds"])  # without --precision, too
        self.fails(2, *PLAN, "--memory-limit", "8 bananas", says=["--memory-limit", "8GB"])
        self.fails(2, *PLAN, "--heads", "25", "--d-model", "1601", says=["25", "1601"])
        self.fails(2, *PLAN, "--d-model", "64,65", "--heads", "4", says=["65"])
        self.fails(2, *PLAN, "--seq", "512,2048", says=["2048", "1024"])
        self.fails(2, *PLAN, "--seq", "128", "256", says=["unexpected argument '256'"])
        self.fails(2, *PLAN, "--d-model", "1000000000000", says=["2^50"])
        self.fails(2, *PLAN, "--model", "tiny", "--layers", "200000", says=["--layers"])
        self.fails(2, "program", "--seq", "64,128", says=["single configuration"])

    def test_what_is_not_here_says_why(self):
        self.fails(5, "bench", "--dtype", "fp8", "--device", "null:a100-sxm", says=["fp8", "null:a100-sxm", "bf16 and fp16"])
        self.fails(5, "gemm", "--dtype", "fp8", "--device", "cpu", says=["fp8", "bf16 and fp16"])
        self.fails(2, "bench", "--dtype", "fp8", "--fp8-gradients", "e3m4", says=["e3m4", "e4m3"])
        self.fails(5, "bench", "--dtype", "tf32", says=["tf32"])
        # Without bf16 instructions products of bf16 run on converted panels.
        for isa in ("AVX512_CORE", "AVX2"):
            shown = self.ok("program", "--device", "cpu", "--layers", "1", "--dtype", "bf16", "--format", "json",
                            environment={**os.environ, "ONEDNN_MAX_CPU_ISA": isa})
            kernels = {op["kernel"] for op in json.loads(shown)["ops"] if op["op"] == "matmul"}
            self.assertTrue(all(kernel.endswith("converted") for kernel in kernels), kernels)
        cuda = json.loads(self.ok("info", "--format", "json"))["cuda"]
        if not cuda["available"]:
            self.assertNotEqual(cuda["reason"], "")
            self.fails(5, "bench", "--device", "cuda", says=["cuda:0", cuda["reason"]])

    def test_closed_output_is_quiet(self):
        for arguments in (["program", "-q"], ["program", "-q", "--format", "json"], ["--help"]):
            process = subprocess.Popen([BINARY, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            process.stdout.close()
            self.assertEqual(process.stderr.read(), b"", arguments)
            process.stderr.close()
            self.assertEqual(process.wait(timeout=60), 0)

    def test_full_disk_is_reported(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "w") as full:
            result = subprocess.run([BINARY, "program"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode, 3)
        self.assertIn("standard output", result.stderr)


class Program(CommandLine):
    def program(self, *arguments):
        return json.loads(self.ok("program", *arguments, "--format", "json"))

    def test_json(self):
        data = self.program(*SMALL)
        self.assertEqual(set(data), {"ops", "totals"})
        op = data["ops"][0]
        for key in ("index", "op", "scope", "phase", "inputs", "outputs", "matmul_flop", "elementwise_flop",
                    "bytes_read", "bytes_written", "recomputed"):
            self.assertIn(key, op)
        for key in ("name", "shape", "dtype", "role"):
            self.assertIn(key, op["inputs"][0])
        totals = data["totals"]
        for key in ("matmul_flop", "elementwise_flop", "bytes_read", "bytes_written"):
            by_op = sum(op[key] for op in data["ops"] if op["phase"] != "setup")
            self.assertEqual(totals[key], by_op)
            self.assertEqual(sum(block[key] for block in totals["by_block"].values()), by_op)
            self.assertEqual(sum(p[key] for name, p in totals["by_phase"].items() if name != "setup"), by_op)
        self.assertGreater(totals["memory"]["arena_bytes"], 0)
        self.assertIn("h.*/attention/qkv", totals["by_block"])

    def test_stages_grow(self):
        counts = [len(self.program(*SMALL, "--stage", stage)["ops"])
                  for stage in ("forward", "differentiate", "optimizer")]
        self.assertEqual(counts, sorted(counts))
        self.assertLess(counts[0], counts[2])

    def test_inference_has_no_backward(self):
        totals = self.program(*SMALL, "--inference")["totals"]
        self.assertEqual(set(totals["by_phase"]) - {"setup"}, {"forward"})

    def test_matmul_flop_of_the_closed_formula(self):
        # 6 N_matmul + 12 L C T per token: tiny has N = L (4 C^2 + 3 C F) + V C.
        tokens, layers, c, f, v, t = 2 * 32, 4, 512, 1344, 10000, 32
        flop = self.program("--model", "tiny", "--batch", "2", "--seq", "32", "--engine", "eager")["totals"]["matmul_flop"]
        self.assertEqual(flop, tokens * (6 * (layers * (4 * c * c + 3 * c * f) + v * c) + 12 * layers * c * t))

    def test_large_models_are_only_looked_at(self):
        for model in ("llama3-70b", "gpt3-175b"):
            text = self.ok("program", "--model", model, "--batch", "1", "--seq", "2048", "--totals")
            self.assertIn("arena", text)

    def test_formats(self):
        rows = list(csv.DictReader(io.StringIO(self.ok("program", *SMALL, "--format", "csv"))))
        self.assertEqual(rows[0]["index"], "0")
        self.assertRegex(self.ok("program", *SMALL, "--format", "md"), r"^\| +# \| op ")


class Planning(CommandLine):
    def test_a_sweep_multiplies(self):
        rows = json.loads(self.ok(*PLAN, "--model", "tiny", "--batch", "1,2", "--seq", "64:192:64", "--engine",
                                  "eager,fused", "--format", "json"))
        self.assertEqual(len(rows), 12)
        self.assertTrue(all(BENCH_KEYS <= set(row) for row in rows), BENCH_KEYS - set(rows[0]))
        self.assertEqual([row["seq"] for row in rows[:6]], [64, 64, 128, 128, 192, 192])
        self.assertTrue(all(row["status"] == "planned" and row["step_ms_mean"] is None for row in rows))

    def test_sizes_and_kinds(self):
        rows = json.loads(self.ok(*PLAN, "--model", "gpt2", "--arch", "gpt2,llama", "--layers", "2", "--format", "json"))
        self.assertEqual([row["arch"] for row in rows], ["gpt2", "llama"])
        self.assertEqual(rows[0]["vocab"], 50304)
        self.assertEqual(rows[0]["layers"], 2)

    def test_out_of_memory_is_a_row_and_the_sweep_goes_on(self):
        arguments = [*PLAN, "--model", "tiny", "--layers", "1,64", "--memory-limit", "1GB", "--format", "json"]
        rows = json.loads(self.ok(*arguments))
        self.assertEqual([row["status"] for row in rows], ["planned", "oom"])
        self.assertGreater(rows[1]["needed_bytes"], 1e9)
        result = rooflm(*PLAN, "--model", "llama3-70b", "--memory-limit", "8GiB", "--format", "json")
        self.assertEqual(result.returncode, 4)
        self.assertEqual(json.loads(result.stdout)[0]["status"], "oom")

    def test_out_of_memory_needs_no_memory(self):
        """A model that no machine holds is refused by its plan, on the processor too."""
        result = rooflm("bench", "--model", "gpt3-175b", "--batch", "1", "--seq", "1024", "--format", "json")
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertGreater(json.loads(result.stdout)[0]["needed_bytes"], 1e12)


class ModelFiles(CommandLine):
    SIZES = {"arch": "llama", "layers": 2, "heads": 4, "kv_heads": 2, "d_model": 64, "d_ff": 128, "vocab": 100}

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = str(pathlib.Path(self.directory.name) / "sizes.json")

    def tearDown(self):
        self.directory.cleanup()

    def write(self, text):
        pathlib.Path(self.path).write_text(text)

    def test_a_json_file_of_sizes(self):
        self.write(json.dumps(self.SIZES))
        row = json.loads(self.ok(*PLAN, "--model", self.path, "--format", "json"))[0]
        self.assertEqual({key: row[key] for key in self.SIZES}, self.SIZES)

    def test_bad_files_name_the_key(self):
        self.write(json.dumps({**self.SIZES, "hidden": 3}))
        self.fails(3, *PLAN, "--model", self.path, says=[self.path, "hidden"])
        self.write(json.dumps({**self.SIZES, "head": 3}))
        self.fails(3, *PLAN, "--model", self.path, says=["did you mean 'heads'"])
        self.write(json.dumps({**self.SIZES, "layers": "two"}))
        self.fails(3, *PLAN, "--model", self.path, says=[self.path, "layers", "two"])
        self.write(json.dumps({key: value for key, value in self.SIZES.items() if key != "d_ff"}))
        self.fails(3, *PLAN, "--model", self.path, says=[self.path, "d_ff"])
        self.write(json.dumps({**self.SIZES, "heads": 5, "kv_heads": 5}))
        self.fails(3, *PLAN, "--model", self.path, says=[self.path])
        for text in ("", "{", "[1]", '{"arch": "llama"'):
            self.write(text)
            self.fails(3, *PLAN, "--model", self.path, says=[self.path])
        self.fails(3, *PLAN, "--model", self.path + ".missing.json", says=["missing"])
        self.fails(3, *PLAN, "--model", self.directory.name, says=["config.json"])


class Measured(CommandLine):
    def test_bench_both_engines(self):
        rows = json.loads(self.ok("bench", *SMALL, "--engine", "eager,fused", "--dtype", "fp32,bf16", "--steps", "2",
                                  "--warmup", "1", "--no-peak", "--format", "json"))
        self.assertEqual(len(rows), 4)
        for row in rows:
            self.assertTrue(BENCH_KEYS <= set(row))
            self.assertEqual(row["status"], "success")
            self.assertGreater(row["step_ms_median"], 0)
            self.assertGreater(row["tokens_per_s"], 0)
            self.assertGreater(row["peak_bytes"], row["state_bytes"])
            self.assertIsNone(row["mfu"])
        # Same numbers from both engines: the same random model on the same tokens.
        self.assertAlmostEqual(rows[0]["loss"], rows[1]["loss"], delta=1e-4 * rows[0]["loss"])
        self.assertIsNotNone(rows[1]["speedup_over_eager"])

    def test_fp8_that_no_matmul_can_use_is_said(self):
        bench = ["bench", "--device", "cpu", "--model", "tiny", "--layers", "1", "--d-model", "32", "--heads", "2", "--d-ff", "64",
                 "--vocab", "64", "--batch", "1", "--dtype", "fp8", "--steps", "2", "--no-peak"]
        self.assertIn("tiny B=1 T=17 fp8 fused: no matmul runs in fp8, all are bf16", self.ok(*bench, "--seq", "17"))
        self.assertNotIn("no matmul runs in fp8", self.ok(*bench, "--seq", "16"))

    def test_short_steps_have_times(self):
        bench = ["bench", "--device", "cpu", "--model", "tiny", "--layers", "1", "--d-model", "32", "--heads", "2", "--d-ff", "64",
                 "--vocab", "64", "--batch", "1", "--seq", "8", "--threads", "1", "--steps", "3", "--no-peak"]
        lines = self.ok(*bench, "--columns", "forward_mean,total").splitlines()
        forward, total = map(float, lines[2].split())
        self.assertGreater(total, 0, lines)
        self.assertGreater(forward, 0, lines)

    def test_bench_table_has_the_columns_of_the_reports(self):
        text = self.ok("bench", *SMALL, "--steps", "2", "--warmup", "0")
        for column in ("size", "d_model", "d_ff", "num_layers", "num_heads", "status", "forward_mean", "forward_std",
                       "backward_mean", "backward_std", "optimizer_mean", "optimizer_std", "total"):
            self.assertIn(column, text.splitlines()[0])
        self.assertRegex(text, "(?s)MFU = .*measured here|no of_peak and no MFU: .* is not usable as a peak")  # where other programs ran

    def test_bench_says_why_it_stopped(self):
        bench = ["bench", *SMALL, "--warmup", "1", "--no-peak", "--format", "json"]
        for arguments, steps, reason in (
                (["--steps", "3"], 3, "3 samples"),
                (["--precision", "100000"], 6, "interval within 1e+05 %"),
                (["--precision", "0.001", "--max-steps", "7", "--max-seconds", "1000"], 7, "7 samples"),
                (["--precision", "0.001", "--max-seconds", "0"], 6, "0 s")):
            row = json.loads(self.ok(*bench, *arguments))[0]
            self.assertEqual((row["steps"], row["stop_reason"]), (steps, reason))
            self.assertIn("drift", row["drift"])
            self.assertGreaterEqual(row["step_ms_mad"], 0)
            self.assertLessEqual(row["outliers"], steps // 2)

    ATTENTION = ("attention", "--seconds", "0.01", "--threads", "1", "--format", "json")

    def test_attention_of_every_kind(self):
        rows = json.loads(self.ok(*self.ATTENTION, "--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--seq",
                                  "32,48", "--engine", "eager,fused", "--dtype", "fp32,bf16"))
        self.assertEqual(len(rows), 2 * 2 * 2 * 3)
        self.assertEqual([row["attention"] for row in rows[:3]], ["looped", "batched", "flash"])
        for row in rows:
            self.assertEqual(row["status"], "success")
            self.assertEqual((row["device"], row["kv_heads"]), ("cpu", 2))
            self.assertGreaterEqual(row["samples"], 3)
            self.assertEqual(row["peak_bytes"], row["needed_bytes"])
            for phase, products in (("forward", 2), ("backward", 4)):
                flop = products * row["heads"] * row["seq"] ** 2 * row["head_dim"]
                self.assertAlmostEqual(row[f"{phase}_flop_per_s"] * row[f"{phase}_ms_median"] / 1e3, flop, delta=1e-6 * flop)
            self.assertEqual(row["attention_forward"], "rooflm" if row["attention"] == "flash" else None)
        # Flash holds no scores: linear in the sequence where the others are quadratic.
        bytes_of = {(row["attention"], row["engine"], row["dtype"], row["seq"]): row["peak_bytes"] for row in rows}
        for (kind, engine, dtype, seq), peak in bytes_of.items():
            if seq == 48:
                grown = peak / bytes_of[kind, engine, dtype, 32]
                self.assertAlmostEqual(grown, 1.5, delta=0.01) if kind == "flash" else self.assertGreater(grown, 1.55)

    def test_attention_out_of_memory_is_a_row_and_the_sweep_goes_on(self):
        sweep = [*self.ATTENTION, "--attention", "batched,flash", "--seq", "1024", "--memory-limit", "4MB"]
        rows = json.loads(self.ok(*sweep))
        self.assertEqual([row["status"] for row in rows], ["oom", "success"])
        self.assertGreater(rows[0]["needed_bytes"], 4e6)
        self.assertGreater(rows[0]["free_bytes"], rows[0]["needed_bytes"])
        result = rooflm(*sweep[:-1], "1kB")
        self.assertEqual(result.returncode, 4)
        self.assertIn("out of memory: needs", result.stderr)
        self.assertEqual({row["status"] for row in json.loads(result.stdout)}, {"oom"})

    GEMM = ("gemm", "--seconds", "0.01", "--threads", "1", "--format", "json")

    def test_gemm_strategies(self):
        rows = json.loads(self.ok(*self.GEMM, "--size", "32,48", "--count", "1,3", "--dtype", "fp32,bf16"))
        self.assertEqual(len(rows), 2 * 2 * 2 * 3)
        self.assertEqual([row["strategy"] for row in rows[:3]], ["big", "looped", "batched"])
        for row in rows:
            self.assertEqual((row["status"], row["m"], row["k"]), ("success", row["n"], row["n"]))
            self.assertEqual(row["flop"], 2 * row["count"] * row["n"] ** 3)
            self.assertGreaterEqual(row["wall_ms_median"], row["device_ms_median"])
            size = 4 if row["dtype"] == "fp32" else 2
            matrices = 3 * row["count"] if row["strategy"] != "big" else 2 * row["count"] + 1
            self.assertEqual(row["needed_bytes"], size * matrices * row["n"] ** 2)

    def test_columns_that_no_table_has_are_refused_before_anything_is_measured(self):
        for command in (["attention", "--seq", "65536"], ["gemm", "--size", "16384"], ["bench", "--model", "2.7B"],
                        ["profile", "--model", "2.7B"], ["study", "heads"], ["peaks", "--remeasure"]):
            done = rooflm(*command, "--columns", "wrong_name")
            self.assertEqual(done.returncode, 2, command)
            self.assertIn("unknown column 'wrong_name'", done.stderr)
            self.assertNotIn("measuring", done.stderr, command)
            self.assertNotIn("[1/", done.stderr, command)
        # Nor those that only other commands have; what is suggested is of this one.
        for command, column in ((["attention"], "kernel_s"), (["train", "--data", "none", "--steps", "2"], "step_ms_mean"), (["peaks"], "loss"),
                                (["study", "gemm"], "loss"), (["study", "--all", "--html", "none"], "zz"),
                                (["profile", *SMALL, "--view", "advice"], "loss"), (["profile", *SMALL], "step_ms_mean"),
                                (["eval"], "forward_ms_mean"), (["verify", "none"], "loss"), (["compare", "none", "none"], "loss"),
                                (["data", "prepare", "none", "-o", "none"], "loss"), (["info"], "loss")):
            done = rooflm(*command, "--columns", column)
            self.assertEqual(done.returncode, 2, command)
            self.assertIn(f"unknown column '{column}'", done.stderr.splitlines()[-1])
            self.assertNotIn("step_ms", done.stderr.replace("'step_ms_mean'", ""))
            self.assertNotIn("[1/", done.stderr, "nothing was measured")
        self.assertIn("did you mean 'verdict'", rooflm("compare", "a", "b", "--columns", "verdic").stderr)

    def test_tables_of_micro_benchmarks_are_views_of_their_records(self):
        with tempfile.TemporaryDirectory() as folder:
            for command, more in ((self.GEMM, ["--size", "32", "--count", "2"]), (self.ATTENTION, ["--seq", "32"])):
                record = str(pathlib.Path(folder) / f"{command[0]}.rooflm")
                rows = json.loads(self.ok(*command, *more, "-o", record))
                view = json.loads(self.ok("report", record, "--view", "cells", "--format", "json"))[0]["tables"][0]
                for row, cells in zip(rows, view["rows"], strict=True):
                    if command[0] == "gemm":
                        self.assertEqual((row["wall_ms_median"], row["wall_flop_per_s"], row["samples"]),
                                         (cells["wall_ms"], cells["rate"], cells["samples"]))
                        self.assertIs(row["trans_b"], False)
                    else:
                        self.assertEqual(row["backward_ms_std"], cells["backward_ms_std"])
                        self.assertAlmostEqual(row["backward_flop_per_s"] / cells["backward_rate"], 1, msg="one convention")
                        self.assertIs(row["deterministic"], True)
                shown = {column["key"] for column in view["columns"]}
                self.assertFalse(shown & {"samples", "free", "trans_b", "wall_ms_std", "deterministic"})
                self.assertEqual(rooflm("verify", record).returncode, 0)

    def test_gemm_of_the_scores_of_a_model(self):
        rows = json.loads(self.ok(*self.GEMM, "--qk-of", "llama3-8b", "--batch", "2", "--seq", "32", "--strategy",
                                  "looped,batched"))
        self.assertEqual([(row["count"], row["m"], row["n"], row["k"]) for row in rows],
                         [(16, 128, 32, 128)] * 2 + [(16, 4, 32, 128)] * 2)
        self.assertTrue(all(row["trans_b"] for row in rows))

    def test_gemm_out_of_memory_is_a_row(self):
        rows = json.loads(self.ok(*self.GEMM, "--size", "16,512", "--count", "1", "--strategy", "big",
                                  "--memory-limit", "1MB"))
        self.assertEqual([row["status"] for row in rows], ["success", "oom"])
        self.fails(2, *self.GEMM, "--strategy", "bached", says=["batched"])
        self.fails(2, *self.ATTENTION, "--heads", "3", "--kv-heads", "2", says=["--kv-heads 2 does not divide"])

    PEAKS = ("peaks", "--device", "cpu", "--threads", "1", "--dtype", "fp32", "--format", "json")

    def memory_levels(self, info):
        return [f"L{cache['level']}" for cache in info["cpu"]["caches"] if cache["type"] != "Instruction"] + ["DRAM"]

    @unittest.skipIf(os.environ.get("ROOFLM_SANITIZER") == "address", "oneDNN's products, without the sanitizer, pass the peak of our loops")
    def test_peaks(self):
        for _ in range(5):  # beside other programs the instruction peak may be measured below the matmuls, and is then left out
            rows = json.loads(self.ok(*self.PEAKS, "--seconds", "0.01"))
            if rows[1]["what"] == "instruction":
                break
        levels = self.memory_levels(json.loads(self.ok("info", "--format", "json")))
        self.assertEqual([(row["what"], row["level"]) for row in rows],
                         [("matmul", ""), ("instruction", "")] +
                         [(what, level) for level in levels
                          for what in ("read", "write", "saxpy", "update", "copy", "triad", "adamw")])
        self.assertIn(" chains", rows[1]["problem"])
        self.assertAlmostEqual(rows[0]["share_of_instruction"], rows[0]["value"] / rows[1]["value"])
        for row in rows:
            self.assertGreater(row["value"], 1e8)
            self.assertIn(row["unit"], ("flop/s", "byte/s"))
            self.assertLessEqual(row["ci_low"], row["value"])
            self.assertGreaterEqual(row["ci_high"], row["value"])

    def test_peaks_are_taken_from_the_file_that_keeps_them(self):
        info = json.loads(self.ok("info", "--format", "json"))
        key = {"processor": info["cpu"]["model"], "threads": info["default_threads"], "rooflm": info["version"],
               "measuring": info["measuring"]}
        row = {"device": "cpu", "dtype": "fp64", "threads": 1, "value": 125.0, "unit": "byte/s", "ci_low": 120.0,
               "ci_high": 130.0, "samples": 9, "problem": "made up", "measured_utc": "2001-02-03T04:05:06Z"}
        ceilings = [{**row, "what": what, "level": level} for level in self.memory_levels(info)
                    for what in ("read", "write", "saxpy", "update", "copy", "triad", "adamw")]
        ceilings += [{**row, "what": what, "level": "", "dtype": "fp32", "unit": "flop/s"}
                     for what in ("matmul", "instruction")]
        name = "-".join(re.sub("[^a-z0-9]+", "-", part.lower()).strip("-") or "unknown"
                        for part in ("ceilings", key["processor"], str(key["threads"]), "threads", key["rooflm"],
                                     key["measuring"]))
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "XDG_CACHE_HOME": folder}
            file = pathlib.Path(folder) / "rooflm" / f"{name}.json"
            file.parent.mkdir()
            file.write_text(json.dumps({"key": key, "ceilings": ceilings}))
            result = rooflm(*self.PEAKS, environment=environment)
            self.assertEqual({row["value"] for row in json.loads(result.stdout)}, {125.0}, result.stderr)
            self.assertEqual(result.stderr, "")
            result = rooflm(*self.PEAKS, "--seconds", "0.01", "--remeasure", environment=environment)
            self.assertGreater(min(row["value"] for row in json.loads(result.stdout)), 1e8)
            file.write_text("{")
            result = rooflm(*self.PEAKS, environment=environment)
            self.assertEqual(result.returncode, 0)
            self.assertIn("measuring the ceilings again: " + str(file), result.stderr)
            self.assertGreater(min(row["value"] for row in json.loads(result.stdout)), 1e8)


class Data(CommandLine):
    def test_text_to_shards_and_back(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "text.txt"
            text.write_text("the quick brown fox jumps over the lazy dog. " * 400)
            data = str(pathlib.Path(folder) / "data")
            rows = json.loads(self.ok("data", "prepare", str(text), "-o", data, "--vocab", "300", "--format", "json"))
            self.assertEqual([row["split"] for row in rows], ["train", "val"])
            shard = json.loads(self.ok("data", "info", rows[0]["first_shard"], "--format", "json"))[0]
            self.assertEqual(shard["tokens"], rows[0]["tokens"])
            self.assertLess(shard["largest_id"], rows[0]["vocab"])
            ids = self.ok("data", "tokenize", "--tokenizer", data, stdin="a lazy fox\n")
            self.assertEqual(self.ok("data", "decode", "--tokenizer", data, stdin=ids), "a lazy fox\n")
            self.fails(2, "data", "prepare", str(text), "-o", data)
            self.fails(3, "data", "prepare", folder + "/missing", "-o", data + "2", says=["missing"])
            self.fails(3, "data", "info", str(text), says=["text.txt"])
            self.fails(3, "data", "decode", "--tokenizer", data, stdin="12 x", says=["byte 3"])


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=1)
