#!/usr/bin/env python3
"""The command line on GPUs, and where there are none: exit codes, one line that says why, rows that did not fit.

Usage: test_cuda.py BINARY [unittest options]"""

import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

BINARY = ""
SMALL = ["--model", "tiny", "--layers", "2", "--vocab", "512", "--batch", "2", "--seq", "32", "--device", "cuda"]
FEW = ["--warmup", "2", "--steps", "3", "--no-peak", "--format", "json"]


def rooflm(*arguments, environment=None, timeout=300):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **(environment or {})})


def gpu_missing():
    """Why there is no GPU, or None."""
    cuda = json.loads(rooflm("info", "--format", "json").stdout)["cuda"]
    return None if cuda["available"] else cuda["reason"]


class KernelsFile(unittest.TestCase):
    """Code for GPUs is in a file beside the binary: what is said where it is not as it should be."""

    def setUp(self):
        if reason := gpu_missing():
            self.skipTest(reason)
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copy(BINARY, self.folder / "rooflm")
        beside = pathlib.Path(BINARY).resolve().parent  # in a build; an installed binary has them in libexec
        self.files = [file for folder in (beside, beside.parent / "libexec" / "rooflm")
                      for file in sorted(folder.glob("librooflm_cuda_*.so"))]

    def bench(self):
        return subprocess.run([self.folder / "rooflm", "bench", *SMALL, *FEW], capture_output=True, text=True, timeout=300,
                              check=False)

    def test_beside_the_binary_it_is_found(self):
        for file in self.files:
            shutil.copy(file, self.folder)
        self.assertEqual(self.bench().returncode, 0)

    def test_a_missing_file_is_not_available(self):
        result = self.bench()
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertIn(".so is not here: it belongs beside the binary", result.stderr)

    def test_a_damaged_file_is_bad_input(self):
        for file in self.files:
            (self.folder / file.name).write_bytes(file.read_bytes()[:-1])
        result = self.bench()
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn(".so is damaged: it has ", result.stderr)


class OneLine(unittest.TestCase):
    def fails(self, code, *arguments, says=(), environment=None):
        result = rooflm(*arguments, environment=environment)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stdout} {result.stderr}")
        lines = [line for line in result.stderr.splitlines() if line.startswith("rooflm: ")]
        self.assertEqual(len(lines), 1, result.stderr)
        for text in says:
            self.assertIn(text, lines[0])


class WithoutGpu(OneLine):
    """Holds on every machine: hidden GPUs are no GPUs."""

    def test_every_command_says_why_there_is_none(self):
        for arguments in (["bench", *SMALL], ["profile", *SMALL], ["peaks", "--device", "cuda"],
                          ["bench", "--device", "cuda:7"]):
            self.fails(5, *arguments, says=["cuda"], environment={"CUDA_VISIBLE_DEVICES": ""})

    def test_info_goes_on(self):
        result = rooflm("info", environment={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("not available", result.stdout)


class OnGpu(OneLine):
    """Skipped where there is none."""

    @classmethod
    def setUpClass(cls):
        reason = gpu_missing()
        if reason:
            raise unittest.SkipTest(reason)


class Commands(OnGpu):
    def rows(self, *arguments, code=0):
        result = rooflm(*arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        return json.loads(result.stdout)

    def test_what_it_does_not_have_is_refused(self):
        self.fails(5, "bench", *SMALL[:-1], "cuda:99", says=["cuda:99"])

    def test_every_dtype_runs_on_both_engines(self):
        dtypes = ["fp32", "tf32", "bf16", "fp16"] + (["bf16x6"] if self.has("bf16x6") else [])
        rows = self.rows("bench", *SMALL, "--dtype", ",".join(dtypes), "--engine", "eager,fused", *FEW)
        losses = [row["loss"] for row in rows]
        self.assertEqual([row["status"] for row in rows], ["success"] * 2 * len(dtypes))
        self.assertLess(max(losses) - min(losses), 0.02 * min(losses))

    def test_experts_run_on_both_engines(self):
        """In the dtypes of their matmuls, with the loss of the processor."""
        sizes = ["--model", "tiny-moe", *SMALL[2:-1]]
        rows = self.rows("bench", *sizes, "cuda", "--dtype", "fp32,bf16,fp16", "--engine", "eager,fused", *FEW)
        expected, = self.rows("bench", *sizes, "cpu", "--dtype", "fp32", *FEW)
        self.assertEqual([row["status"] for row in rows], ["success"] * 6)
        for row in rows:
            self.assertLess(abs(row["loss"] - expected["loss"]), 0.01 * expected["loss"], row)

    def test_every_optimizer_runs_on_both_engines(self):
        methods = [("--optimizer", "adamw,lion,muon,shampoo"), ("--states", "bf16,8bit"), ("--optimizer", "muon", "--states", "8bit"),
                   ("--lora", "4"), ("--lora", "4,targets=all-linear"), ("--lora", "4,dora"),
                   ("--lora", "4,dora,rslora,targets=all-linear"), ("--lora", "4,dora", "--base", "int8,nf4")]
        for method in methods:
            rows = self.rows("bench", *SMALL, *method, "--dtype", "fp32,bf16", "--engine", "eager,fused", *FEW)
            self.assertEqual({row["status"] for row in rows}, {"success"}, method)

    def has(self, dtype):
        return dtype in json.loads(rooflm("info", "--format", "json").stdout)["dtypes"]["cuda"]

    def test_bf16x6_is_as_good_as_fp32(self):
        if not self.has("bf16x6"):
            return self.fails(5, "bench", *SMALL, *FEW, "--dtype", "bf16x6", says=["bf16x6", "fp32"])
        rows = self.rows("bench", *SMALL, *FEW, "--dtype", "fp32,bf16x6")
        losses = [row["loss"] for row in rows]
        self.assertLess(abs(losses[0] - losses[1]), 1e-5 * losses[0])

    def test_fp8_runs_where_the_gpu_has_it(self):
        sizes = [*SMALL, "--engine", "eager,fused", *FEW]
        if not self.has("fp8"):
            self.fails(5, "bench", *sizes, "--dtype", "fp8", says=["fp8", "bf16", "fp16"])
            return
        rows = self.rows("bench", *sizes, "--dtype", "bf16,fp8", "--fp8-scaling", "delayed,current")
        self.assertEqual({row["status"] for row in rows}, {"success"})
        losses = [row["loss"] for row in rows]
        self.assertLess(max(losses) - min(losses), 0.02 * min(losses))

    def test_plans_count_all_memory_that_a_step_takes(self):
        """Workspaces of kernels and gradients of early updates included (docs/accuracy.md)."""
        name = json.loads(rooflm("info", "--format", "json").stdout)["cuda"]["devices"][0]["name"]
        key = {"NVIDIA H200": "h200", "NVIDIA H100 80GB HBM3": "h100-sxm"}.get(name)
        if key is None:
            self.skipTest(f"{name} is not one that plans were compared on")
        sizes = ["--model", "gpt2", "--layers", "4", "--batch", "16", "--seq", "512", "--dtype", "bf16", "--device", "cuda"]
        for options in ([], ["--nondeterministic"], ["--clip", "0", "--nondeterministic"]):
            with self.subTest(options=options), tempfile.TemporaryDirectory() as folder:
                record = f"{folder}/a.rooflm"
                self.rows("bench", *sizes, *options, *FEW, "-o", record)
                found = self.rows("plan", "--against", record, "--device", key, "--format", "json")
                errors = [row["error"] for row in found if row["what"] == "memory"]
                self.assertEqual(len(errors), 1)
                self.assertLess(abs(errors[0]), 0.01)

    def test_rows_that_do_not_fit_say_so_and_the_sweep_goes_on(self):
        sizes = ["--model", "tiny,small", "--vocab", "512", "--batch", "1,4096,1", "--seq", "128", "--device", "cuda"]
        rows = self.rows("bench", *sizes, *FEW)
        status = {(row["model"], row["batch"]): row["status"] for row in rows}
        self.assertEqual(status[("small", 4096)], "oom")
        self.assertEqual(status[("small", 1)], "success")
        for row in rows:
            if row["status"] == "oom":
                self.assertGreater(row["needed_bytes"], row["free_bytes"])
        # Rows after the one that did not fit have what rows before it had.
        tiny = [row["peak_bytes"] for row in rows if (row["model"], row["batch"]) == ("tiny", 1)]
        self.assertEqual(tiny[0], tiny[-1])

    def test_the_limit_holds(self):
        rows = self.rows("bench", *SMALL, "--memory-limit", "1MB", *FEW, code=4)
        self.assertEqual([row["status"] for row in rows], ["oom"])

    def test_profiles_have_roofs_and_keep_all_laws(self):
        with tempfile.TemporaryDirectory() as folder:
            record = str(pathlib.Path(folder) / "run.rooflm")
            environment = {"XDG_CACHE_HOME": folder}
            for dtype, engine in (("bf16", "fused"), ("tf32", "fused"), ("fp16", "fused"), ("fp32", "fused"), ("bf16", "eager"),
                                  ("bf16x6", "fused")):
                if not self.has(dtype):
                    continue
                result = rooflm("profile", "--model", "small", "--batch", "4", "--seq", "256", "--device", "cuda",
                                "--dtype", dtype, "--engine", engine, "--max-steps", "20", "-o", record, "--overwrite",
                                environment=environment)
                self.assertEqual(result.returncode, 0, result.stderr)
                checked = rooflm("verify", record)
                self.assertEqual(checked.returncode, 0, f"{dtype} {engine}: {checked.stdout} {checked.stderr}")
                self.assertIn("roof", checked.stdout)
                shown = rooflm("report", record, "--view", "roofline,overview", "--format", "json")
                self.assertEqual(shown.returncode, 0, shown.stderr)
                self.assertIn(f"matmul {dtype}", shown.stdout)
                self.check_trace(record, engine)
            self.assertTrue(list(pathlib.Path(folder, "rooflm").glob("ceilings-*.json")))

    def test_counters_count_what_shapes_say_or_say_why_not(self):
        with tempfile.TemporaryDirectory() as folder:
            record = str(pathlib.Path(folder) / "run.rooflm")
            result = rooflm("profile", "--model", "small", "--layers", "2", "--batch", "4", "--seq", "256", "--device",
                            "cuda", "--dtype", "bf16", "--max-steps", "10", "--autotune", "none", "--counters",
                            "-o", record, environment={"XDG_CACHE_HOME": folder})
            self.assertEqual(result.returncode, 0, result.stderr)
            checked = rooflm("verify", record)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
            tables = json.loads(rooflm("report", record, "--view", "counters", "--format", "json").stdout)[0]["tables"]
            of = {table["id"]: table["rows"] for table in tables}
            with sqlite3.connect(record) as database:
                facts = dict(database.execute("SELECT key, text FROM fact"))
            if "counters_missing" in facts:
                self.assertNotIn("counters.work", of)
                self.skipTest(facts["counters_missing"])
            for row in of["counters.checks"]:
                self.assertAlmostEqual(row["ratio"], 1, delta=0.02, msg=row)
            self.assertAlmostEqual(of["counters.work"][-1]["flop_ratio"], 1, delta=0.05)

    def check_trace(self, record, engine):
        """Every kernel of the traced steps belongs to an op, or the record says why nothing was traced."""
        with sqlite3.connect(record) as database:
            facts = {key: (value, text) for key, value, text in database.execute("SELECT key, value, text FROM fact")}
            if "tracing" in facts:
                self.assertIn("not traced: ", facts["tracing"][1])
                return
            self.assertGreater(facts["traced_kernels"][0], 0)
            self.assertEqual(facts["trace_lost"][0], 0)
            self.assertEqual(facts["trace_without_op"][0], 0)
            kinds = {kind for kind, in database.execute("SELECT DISTINCT kind FROM sample")}
            self.assertLessEqual({"plain", "observed", "traced", "untraced"}, kinds)
            self.assertIn("alone", kinds)
            alone, = database.execute("SELECT COUNT(*) FROM counter WHERE source = 'alone' AND value > 0").fetchone()
            timed, = database.execute("SELECT COUNT(DISTINCT op) FROM event").fetchone()
            self.assertEqual(alone, timed, "every op has a wall time of its own")
            if engine == "fused":  # replayed, held until it is submitted
                self.assertIn("in_order", kinds)
                self.assertIn("starts when a step is submitted", facts["tracing_cost"][1])

    def test_beside_another_profiler_there_is_one_line_and_the_profile_goes_on(self):
        if shutil.which("ncu") is None:
            self.skipTest("ncu is not on PATH")
        with tempfile.TemporaryDirectory() as folder:
            record = str(pathlib.Path(folder) / "run.rooflm")
            command = ["ncu", "--profile-from-start", "off", BINARY, "profile", *SMALL, "--max-steps", "3", "-o", record]
            result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            lines = [line for line in result.stderr.splitlines() if "not traced: " in line]
            self.assertEqual(len(lines), 1, result.stderr)
            self.assertIn("another profiler is attached", lines[0])
            with sqlite3.connect(record) as database:  # times beside ncu are no good, but they are there
                self.assertGreater(database.execute("SELECT COUNT(*) FROM event").fetchone()[0], 0)

    def test_tracing_can_be_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            record = str(pathlib.Path(folder) / "run.rooflm")
            result = rooflm("profile", *SMALL, "--max-steps", "3", "--trace", "off", "-o", record)
            self.assertEqual(result.returncode, 0, result.stderr)
            with sqlite3.connect(record) as database:
                self.assertEqual(database.execute("SELECT COUNT(*) FROM activity").fetchone()[0], 0)
        self.fails(2, "profile", *SMALL, "--trace", "maybe", says=["--trace", "on or off"])

    def test_products_say_how_they_were_launched(self):
        rows = self.rows("gemm", "--device", "cuda", "--dtype", "bf16", "--size", "512", "--count", "4",
                         "--strategy", "big,looped,batched", "--seconds", "0.05", "--format", "json")
        kernels = {row["strategy"]: row["kernels"] for row in rows}
        self.assertGreaterEqual(kernels["looped"], 4 * kernels["big"])
        for row in rows:
            self.assertRegex(row["grid"], r"^\d+x\d+x\d+$")
            self.assertGreater(row["blocks"] * row["waves"] * row["occupancy"], 0)
            self.assertTrue(row["kernel"])

    def test_peaks_have_all_rows(self):
        rows = self.rows("peaks", "--device", "cuda", "--seconds", "0.05", "--format", "json")
        of = {(row["what"], row["level"], row["dtype"]): row["value"] for row in rows}
        for dtype in ("fp32", "tf32", "bf16", "fp16") + (("bf16x6",) if self.has("bf16x6") else ()):
            self.assertIn(("matmul", "", dtype), of)
            self.assertGreater(of[("matmul burst", "", dtype)], 0.9 * of[("matmul", "", dtype)])
            if of.get(("instruction", "", dtype)):
                self.assertGreaterEqual(of[("instruction", "", dtype)], of[("matmul", "", dtype)])
                self.assertGreaterEqual(of[("instruction burst", "", dtype)], of[("matmul burst", "", dtype)])
        for what in ("read", "write", "update", "copy", "adamw"):
            self.assertIn((what, "DRAM", "fp32"), of)
        self.assertGreater(of[("read", "L2", "fp32")], of[("read", "DRAM", "fp32")])
        for what in ("launch and wait", "launch", "graph node", "graph launch"):
            self.assertLess(of[(what, "", "")], 1e-3)
        for what in ("to device, pinned", "from device, pageable"):
            self.assertIn((what, "host", "fp32"), of)


class Training(OnGpu):
    """From the text to a resumed checkpoint."""

    def train(self, folder, dtype, name, *more, model=("tiny", "--layers", "2")):
        result = rooflm("train", "--data", f"{folder}/data", "--model", *model, "--batch", "2",
                        "--seq", "32", "--device", "cuda", "--dtype", dtype, "--no-peak", "--out",
                        f"{folder}/{dtype}-{name}", "--schedule", "constant", "--lr", "1e-3", "--format", "json", *more)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)[0]

    def prepare(self, folder):
        text = pathlib.Path(folder) / "text.txt"
        text.write_text("the quick brown fox jumps over the lazy dog. " * 400)
        made = rooflm("data", "prepare", str(text), "--vocab", "300", "-o", f"{folder}/data")
        self.assertEqual(made.returncode, 0, made.stderr)

    def resume(self, folder, name):
        rest = rooflm("train", "--out", f"{folder}/{name}", "--resume", "--steps", "12", "--device", "cuda", "--no-peak",
                      "--format", "json")
        self.assertEqual(rest.returncode, 0, rest.stderr)
        return json.loads(rest.stdout)[0]

    def test_every_way_to_the_same_loss_resumes_bit_for_bit(self):
        ways = [("--optimizer", "lion"), ("--optimizer", "muon"), ("--optimizer", "shampoo"), ("--states", "bf16"), ("--states", "8bit"),
                ("--lora", "4"), ("--lora", "4,dora,targets=all-linear"), ("--lora", "4", "--base", "nf4")]
        with tempfile.TemporaryDirectory() as folder:
            self.prepare(folder)
            self.train(folder, "bf16", "base", "--steps", "2")
            for number, way in enumerate(ways):
                with self.subTest(way=way):
                    model = {"model": [f"{folder}/bf16-base"]} if "--lora" in way else {}
                    whole = self.train(folder, "bf16", f"whole{number}", "--steps", "12", *way, **model)
                    self.train(folder, "bf16", f"parts{number}", "--steps", "6", *way, **model)
                    self.assertEqual(self.resume(folder, f"bf16-parts{number}")["loss"], whole["loss"])
                    last = [pathlib.Path(folder, f"bf16-{name}{number}", "latest") for name in ("whole", "parts")]
                    files = sorted(file.name for file in last[0].glob("*.safetensors"))
                    self.assertTrue(files)
                    for file in files:
                        self.assertEqual(last[0].joinpath(file).read_bytes(), last[1].joinpath(file).read_bytes(), file)

    def test_half_precision_resumes_bit_for_bit(self):
        with tempfile.TemporaryDirectory() as folder:
            self.prepare(folder)
            has_fp8 = "fp8" in json.loads(rooflm("info", "--format", "json").stdout)["dtypes"]["cuda"]
            for dtype in ("fp16", "bf16", *(["fp8"] if has_fp8 else [])):
                whole = self.train(folder, dtype, "whole", "--steps", "12")
                self.train(folder, dtype, "parts", "--steps", "6")
                resumed = self.resume(folder, f"{dtype}-parts")
                for key in ("loss", "loss_scale", "skipped_steps"):
                    self.assertEqual(resumed.get(key), whole.get(key), f"{dtype} {key}")
            log = pathlib.Path(folder, "fp16-parts", "log.jsonl").read_text().splitlines()
            self.assertTrue(all(json.loads(line)["loss_scale"] > 0 for line in log))


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
