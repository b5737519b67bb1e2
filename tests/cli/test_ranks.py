"""Several ranks on processors: every split trains as one rank does, and what goes wrong ends all, and says why."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

from training_runs import TrainingRuns, numbers_of

MODEL = ["--model", "tiny", "--layers", "2", "--d-model", "32", "--heads", "4", "--d-ff", "64", "--seq", "16",
         "--lr", "0.01", "--no-peak", "--threads", "1", "--eval-batches", "3"]
STEPS = 20
SEQUENCES = 8  # of a step


class Ranks(TrainingRuns):
    def words(self, out, *arguments):
        return ["train", "--data", self.data, "--out", out, *MODEL, *arguments]

    def numbers(self, name, *arguments, ranks=1, steps=STEPS, by=None):
        """Trains in a directory of that name; the log without its times."""
        out = self.folder / name
        starter = by or (["launch", "-n", ranks, "--"] if ranks > 1 else [])
        self.ok(*starter, *self.words(out, "--steps", steps, *arguments))
        return numbers_of(out / "log.jsonl")

    def expect_near(self, actual, expected, tolerance):
        self.assertEqual(len(actual), len(expected))
        for a, b in zip(actual, expected):
            self.assertEqual(a["tokens"], b["tokens"])
            for key in ("loss", "grad_norm", "val_loss"):
                if b[key] is not None:
                    self.assertLessEqual(abs(a[key] - b[key]), tolerance * abs(b[key]), (key, a, b))

    def start_ranks(self, *arguments, ranks=2):
        return subprocess.Popen([self.binary, "launch", "-n", str(ranks), "--timeout", "2", "--",
                                 *map(str, self.words(self.out, *arguments))],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def wait_for_step(self, step):
        log = self.out / "log.jsonl"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if log.exists() and len(log.read_text().splitlines()) >= step:
                return
            time.sleep(0.02)
        self.fail("no step was logged")

    @staticmethod
    def children(process):
        return [int(pid) for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


class Splits(Ranks):
    def test_each_split_trains_as_one_rank(self):
        accumulated = ["--grad-accum", "2"]
        whole = self.numbers("whole", "--batch", SEQUENCES)
        whole_accumulated = self.numbers("whole_accumulated", "--batch", SEQUENCES // 2, *accumulated)
        data = None
        for ranks, name, *arguments in [
                (2, "dp", "--batch", "4"),
                (2, "zero1", "--zero", "1", "--batch", "4"),
                (2, "zero2", "--zero", "2", "--batch", "4"),
                (2, "zero3", "--zero", "3", "--batch", "4"),
                (2, "tp", "--tp", "2", "--batch", "8"),
                (2, "sp", "--tp", "2", "--sequence-parallel", "--batch", "8"),
                (2, "pp", "--pp", "2", "--batch", "4", *accumulated),
                (2, "cp", "--cp", "2", "--batch", "8"),
                (4, "dp_cp", "--dp", "2", "--cp", "2", "--batch", "4"),
                (4, "cp4_zero3", "--cp", "4", "--zero", "3", "--batch", "4", *accumulated),
                (4, "cp_pp", "--cp", "2", "--pp", "2", "--batch", "4", *accumulated),
                (4, "dp4", "--dp", "4", "--zero", "1", "--batch", "2"),
                (4, "dp_tp", "--tp", "2", "--zero", "3", "--batch", "4"),
                (4, "dp_pp", "--pp", "2", "--zero", "1", "--batch", "2", *accumulated)]:
            with self.subTest(split=name):
                numbers = self.numbers(name, *arguments, ranks=ranks)
                self.expect_near(numbers, whole_accumulated if "--grad-accum" in arguments else whole, 1e-5)
                if name == "dp":
                    data = numbers
                if name.startswith("zero"):
                    self.assertEqual(numbers, data, "ZeRO gives the bits of data parallel")

    def test_ranks_that_share_sequences_train_every_kind_of_model(self):
        """Learned positions and rotations, grouped queries, both engines. At --lr 0.01 some of these amplify last bits, however they are split."""
        for name, tolerance, *kind in [("gpt2", 1e-5, "--arch", "gpt2"), ("llama_grouped", 1e-5, "--arch", "llama", "--kv-heads", "2"),
                                       ("eager", 1e-5, "--engine", "eager"), ("recompute", 1e-5, "--recompute", "full", "--clip", "0"),
                                       ("bf16", 0.02, "--dtype", "bf16"), ("bf16_eager", 0.02, "--dtype", "bf16", "--engine", "eager")]:
            with self.subTest(kind=name):
                arguments = [*kind, "--lr", "0.003", "--batch", "4"]
                whole = self.numbers(f"{name}_whole", *arguments)
                self.expect_near(self.numbers(name, *arguments, "--cp", "2", ranks=2), whole, tolerance)

    def test_mpirun_gives_the_bits_of_launch(self):
        if shutil.which("mpirun") is None:
            self.skipTest("no mpirun on this machine (Debian package openmpi-bin)")
        arguments = ["--cp", "2", "--zero", "1", "--batch", "4"]
        out = self.folder / "mpi"
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        result = subprocess.run(["mpirun", "--oversubscribe", "-n", "2", self.binary,
                                 *map(str, self.words(out, "--steps", 5, *arguments))],
                                capture_output=True, text=True, timeout=120, env=environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(numbers_of(out / "log.jsonl"), self.numbers("launch", *arguments, ranks=2, steps=5))

    def test_bench_times_ranks(self):
        rows = json.loads(self.ok("launch", "-n", 2, "--", "bench", "--model", "tiny", "--layers", "1", "--d-model", "32",
                                  "--heads", "2", "--vocab", "64", "--seq", "16", "--batch", "2", "--zero", "1", "--steps", "3",
                                  "--no-peak", "--format", "json"))
        self.assertEqual([(row["dp"], row["zero"], row["status"]) for row in rows], [(2, 1, "success")])
        self.assertAlmostEqual(rows[0]["tokens_per_s"], 2 * 2 * 16 / rows[0]["step_ms_median"] * 1e3, places=3)

    def test_collectives_run_beside_computation_where_that_is_faster(self):
        size = ["bench", "--model", "tiny", "--layers", "2", "--d-model", "32", "--heads", "2", "--vocab", "64", "--seq", "16", "--batch", "2", "--steps", "3",
                "--no-peak", "--device", "cpu", "--threads", "1"]
        records = []
        for overlap in ("on", "off", "auto"):
            record = self.folder / f"{overlap}.rooflm"
            said = self.run_rooflm("launch", "-n", 2, "--", *size, "--zero", "1", "--overlap", overlap, "-o", record, "--format", "json")
            self.assertEqual(said.returncode, 0, said.stderr)
            row = json.loads(said.stdout)[0]
            self.assertEqual(row["overlap"], overlap)
            self.assertGreater(row["exposed_ms"], 0)
            self.assertLess(row["exposed_ms"], row["step_ms_median"])
            self.assertEqual("collectives overlapped with computation: " in said.stderr, overlap == "auto")
            records.append(record)
        losses = [row["loss"] for row in json.loads(self.ok("report", *records[:2], "--view", "bench", "--format", "json"))[0]["tables"][0]["rows"]]
        self.assertEqual(*losses)
        one = self.folder / "one.rooflm"
        self.assertIsNone(json.loads(self.ok(*size, "-o", one, "--format", "json"))[0]["exposed_ms"])
        rows = json.loads(self.ok("report", one, *records, "--view", "speedup", "--format", "json"))[0]["tables"][0]["rows"]
        self.assertEqual([(row["ranks"], row["kind"]) for row in rows], [(1, "")] + 3 * [(2, "weak")])
        for row in rows[1:]:
            self.assertAlmostEqual(row["lost_s"], row["step_s"] - rows[0]["step_s"])
        self.assertEqual(self.run_rooflm("bench", "--overlap", "of").returncode, 2)


class Profiles(Ranks):
    SIZE = ["--model", "tiny", "--layers", "2", "--d-model", "32", "--heads", "2", "--vocab", "64", "--seq", "16", "--batch", "2",
            "--dtype", "fp32", "--device", "cpu", "--threads", "1", "--trace", "off"]

    def cells(self, record):
        """Series, and its rows."""
        tables = json.loads(self.ok("report", record, "--view", "cells", "--format", "json"))[0]["tables"]
        return [{table["id"]: table["rows"] for table in tables}[name] for name in ("cells.collectives", "cells.ranks")]

    def check_other_ranks(self, record, ranks):
        """The record keeps three observed steps of each other rank, on the first one's clock; a trace has a process for each."""
        trace = self.folder / "trace.json"
        self.ok("export", record, "--format", "kineto", "-o", trace, "--overwrite")
        events = json.loads(trace.read_text())["traceEvents"]
        self.assertEqual({event["args"]["name"] for event in events if event["name"] == "process_name"}, {f"rank {rank}" for rank in range(ranks)})
        steps = {}
        for event in events:
            if event["name"].startswith("ProfilerStep#"):
                steps.setdefault(event["pid"] // 1000, {})[event["name"]] = (event["ts"], event["ts"] + event["dur"])
        self.assertEqual(sorted(steps), list(range(ranks)))
        for rank in range(1, ranks):
            self.assertEqual(len(steps[rank]), 3)
            for name, (start, end) in steps[rank].items():
                self.assertLess(max(start, steps[0][name][0]), min(end, steps[0][name][1]), "they met in the collectives of the step")

    def test_collectives_of_all_ranks_are_on_one_clock(self):
        for ranks, name, groups, *split in [(2, "zero1", {"data"}, "--zero", "1", "--overlap", "on"), (2, "cp", {"data", "context"}, "--cp", "2"), (4, "dp_tp", {"data", "tensor"}, "--tp", "2"),
                                            (4, "dp_pp", {"data", "pipeline"}, "--pp", "2", "--grad-accum", "2")]:
            with self.subTest(split=name):
                record = self.folder / f"{name}.rooflm"
                self.ok("launch", "-n", ranks, "--", "profile", *self.SIZE, *split, "--steps", 3, "-o", record, "--view", "overview")
                self.ok("verify", record)
                self.assertNotIn("busy machine", self.ok("report", record, "--view", "overview"), "the other ranks are no strangers")
                calls, all_ranks = self.cells(record)
                self.assertEqual({row["group"] for row in calls}, groups)
                for row in calls:
                    self.assertAlmostEqual(row["time_us"], row["waiting_us"] + row["transfer_us"], places=6)
                    self.assertGreaterEqual(row["waiting_us"], 0)
                    factor = 1 if row["op"] == "sendrecv" else {"all_reduce": 2}.get(row["op"], 1) * (row["ranks"] - 1) / row["ranks"]
                    if row["op"] == "send":  # it waits for nobody, and ends before its bytes have arrived
                        self.assertEqual(row["waiting_us"], 0)
                        continue
                    factor = 1 if row["op"] == "receive" else factor
                    self.assertAlmostEqual(row["busbw"] * row["transfer_us"] * 1e-6 / (factor * row["size"]), 1)
                self.assertEqual([row["rank"] for row in all_ranks], list(range(ranks)))
                self.assertAlmostEqual(sum(row["last"] for row in all_ranks), 1)
                for row in all_ranks:
                    self.assertGreater(row["own_us"], 0)
                    self.assertAlmostEqual(row["step_us"], sum(row[part] for part in ("own_us", "transfer_us", "waiting_us")))
                    self.assertGreaterEqual(row["hidden_us"], -1e-6)
                if name == "zero1":
                    self.assertGreater(max(row["hidden_us"] for row in all_ranks), 0, "some of it was beside computation")
                self.assertEqual({row["op"] for row in calls} >= {"send", "receive"}, name == "dp_pp")
                self.check_other_ranks(record, ranks)
                planned = json.loads(self.ok("plan", "--against", record, "--device", "h100-sxm", "--format", "json"))
                self.assertGreater({row["what"]: row["measured"] for row in planned}["collective"], 0)

    def test_what_cannot_be_profiled(self):
        for arguments, says in [(("--batch", "1,2"), "a single configuration"), (("--precision", "1"), "same steps")]:
            result = self.run_rooflm("launch", "-n", 2, "--", "profile", *self.SIZE, *arguments)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(says, result.stderr)


class Evaluations(Ranks):
    def evaluate(self, *more, ranks=1):
        starter = ["launch", "-n", ranks, "--"] if ranks > 1 else []
        row = json.loads(self.ok(*starter, "eval", "--model", self.out, "--data", self.data, "--seq", 16, "--threads", 1,
                                 "--device", "cpu", "--format", "json", *more))[0]
        del row["tokens_per_s"]
        return row

    def test_ranks_get_the_bits_of_one(self):
        self.numbers("out", "--batch", "2", steps=2)
        for more in (("--batch", 1), ("--batch", 2, "--batches", 5)):  # what is left over is of some ranks only
            whole = self.evaluate(*more)
            self.assertGreater(whole["batches"], 3)
            for ranks in (2, 3):
                self.assertEqual(self.evaluate(*more, ranks=ranks), whole)


class Comm(Ranks):
    """Collectives alone."""

    SHORT = ["comm", "--device", "cpu", "--seconds", "0.001", "--format", "json"]

    def test_all_collectives_are_right(self):
        record = self.folder / "comm.rooflm"
        rows = json.loads(self.ok("launch", "-n", 3, "--", *self.SHORT, "--size", "64,5000", "--dtype", "fp32,bf16", "-o", record))
        self.assertEqual(len(rows), (3 * 2 + 1) * 2 * 2)
        self.assertEqual({(row["carrier"], row["ranks"], row["hosts"], row["status"], row["wrong"]) for row in rows},
                         {("sockets", 3, 1, "success", 0)})
        factors = {"all_reduce": 4 / 3, "all_gather": 2 / 3, "reduce_scatter": 2 / 3, "sendrecv": 1}
        for row in rows:
            self.assertAlmostEqual(row["algbw"] * row["time_us"] * 1e-6 / row["size"], 1)
            self.assertAlmostEqual(row["busbw"] / row["algbw"], factors[row["op"]])
            self.assertLessEqual(row["time_us_low"], row["time_us"])
            self.assertGreaterEqual(row["time_us_high"], row["time_us"])
            self.assertGreaterEqual(row["samples"], 5)
            parts = 3 if row["op"] in ("all_gather", "reduce_scatter") else 1
            self.assertEqual(row["size"], row["count"] * parts * (4 if row["type"] == "fp32" else 2))
        self.ok("verify", record)
        self.assertIn("busbw", self.ok("report", record, "--view", "cells"))
        done = self.run_rooflm("plan", "--model", "tiny", "--device", "h100-sxm", "--gpus", 2, "--calibrate", record)
        self.assertEqual((done.returncode, done.stdout.count("tiny")), (0, 1))
        self.assertIn("collectives measured over sockets, planned for NVLink4", done.stderr)

    def test_under_mpirun(self):
        if shutil.which("mpirun") is None:
            self.skipTest("no mpirun on this machine (Debian package openmpi-bin)")
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        result = subprocess.run(["mpirun", "--oversubscribe", "-n", "2", self.binary, *self.SHORT, "--size", "64KiB"],
                                capture_output=True, text=True, timeout=120, env=environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual({(row["carrier"], row["wrong"]) for row in json.loads(result.stdout)}, {("Open MPI", 0)})

    def test_bad_input(self):
        self.fails(2, "comm", "--device", "cpu", says=("launch -n 2 -- comm",))
        for arguments, says in [(("--op", "all_reduc"), "did you mean 'all_reduce'"), (("--size", "4", "--op", "all_gather"), "less than one element"),
                                (("--place", "on"), "in or out"), (("--size", "x"), "--size"), (("--size", "99999999999GB"), "larger than any memory")]:
            with self.subTest(arguments=arguments):
                result = self.run_rooflm("launch", "-n", 2, "--", *self.SHORT, *arguments)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(says, result.stderr)


class Checkpoints(Ranks):
    def test_another_number_of_ranks_goes_on(self):
        arguments = ["--batch", "4", "--zero", "1", "--schedule", "constant"]
        whole = self.numbers("whole", *arguments, ranks=2, steps=6)
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                out = self.folder / f"on_{ranks}"
                self.numbers(out.name, *arguments, ranks=2, steps=3)
                starter = ["launch", "-n", ranks, "--"] if ranks > 1 else []
                self.ok(*starter, "train", "--out", out, "--resume", "--steps", 6, "--no-peak", "--threads", "1")
                self.expect_near(numbers_of(out / "log.jsonl"), whole, 1e-5)
                if ranks == 2:
                    losses = [[line["loss"] for line in lines] for lines in (numbers_of(out / "log.jsonl"), whole)]
                    self.assertEqual(*losses)

    def test_parts_are_those_of_the_whole(self):
        """Each rank writes what it has; read with other splits, and exported, that is what the first rank would have written."""
        for ranks, name, *split in [(2, "dp", "--batch", "4"), (2, "zero3", "--zero", "3", "--batch", "4"),
                                    (2, "sp", "--tp", "2", "--sequence-parallel", "--batch", "8"),
                                    (2, "cp", "--cp", "2", "--zero", "1", "--batch", "8"),
                                    (4, "dp_tp", "--tp", "2", "--zero", "1", "--batch", "4"),
                                    (4, "dp_pp", "--pp", "2", "--zero", "1", "--batch", "2", "--grad-accum", "2")]:
            with self.subTest(split=name):
                arguments = [*split, "--schedule", "constant"]
                whole = self.numbers(f"{name}_whole", *arguments, ranks=ranks, steps=3)
                parts = self.numbers(f"{name}_parts", *arguments, "--checkpoint-layout", "parts", ranks=ranks, steps=3)
                self.assertEqual(parts, whole)
                latest, expected = self.folder / f"{name}_parts" / "latest", self.folder / f"{name}_whole" / "latest"
                self.assertEqual(sorted(path.name for path in latest.iterdir()), sorted(
                    ["config.json", "state.json", "tokenizer.json", *(f"part-{i + 1:05}-of-{ranks:05}.safetensors" for i in range(ranks))]))
                exported = self.folder / f"{name}_exported"
                self.ok("export", latest, "--format", "huggingface", "-o", f"{exported}/")
                for file in ("config.json", "model.safetensors", "tokenizer.json"):
                    self.assertEqual((exported / file).read_bytes(), (expected / file).read_bytes(), file)
                # Other tools learn from it where texts end.
                end = next(token["id"] for token in json.loads((exported / "tokenizer.json").read_text())["added_tokens"]
                           if token["content"] == "<|endoftext|>")
                config = json.loads((exported / "config.json").read_text())
                self.assertEqual((config["bos_token_id"], config["eos_token_id"]), (end, end))
                # Optimizer state, too: one rank goes on from both alike.
                for out in (latest.parent, expected.parent):
                    self.ok("train", "--out", out, "--resume", "--steps", 5, "--no-peak", "--threads", "1",
                            "--cp", 1, "--tp", 1, "--pp", 1)
                for file in ("model.safetensors", "optimizer.safetensors"):
                    self.assertEqual((latest / file).read_bytes(), (expected / file).read_bytes(), file)

    def test_parts_go_on_with_another_split(self):
        arguments = ["--batch", "4", "--zero", "2", "--schedule", "constant"]
        whole = self.numbers("whole", *arguments, ranks=2, steps=6)
        self.numbers("out", *arguments, "--checkpoint-layout", "parts", ranks=2, steps=3)
        self.ok("launch", "-n", 4, "--", "train", "--out", self.out, "--resume", "--steps", 6, "--no-peak", "--threads", "1",
                "--tp", 2, "--zero", 3)
        self.expect_near(numbers_of(self.out / "log.jsonl"), whole, 1e-5)
        self.assertTrue((self.out / "latest" / "part-00004-of-00004.safetensors").exists(), "the layout is remembered")
        for command in (("eval", "--batch", 1, "--seq", 16, "--data", self.data), ("generate", "--prompt", "the cat", "--tokens", 2)):
            self.ok(command[0], "--model", self.out, *command[1:])

    def test_a_part_is_missing_or_damaged(self):
        self.numbers("out", "--batch", "2", "--zero", "1", "--checkpoint-layout", "parts", ranks=2, steps=1)
        part = self.out / "latest" / "part-00002-of-00002.safetensors"
        resume = ("train", "--out", self.out, "--resume", "--no-peak", "--threads", "1")
        whole = part.read_bytes()
        part.write_bytes(whole[:-4] + bytes(b ^ 1 for b in whole[-4:]))
        self.fails(3, *resume, says=(part.name, "is damaged or was changed"))
        part.unlink()
        for command in (resume, ("eval", "--model", self.out, "--data", self.data),
                        ("export", self.out, "--format", "huggingface", "-o", self.folder / "model")):
            with self.subTest(command=command[0]):
                self.fails(3, *command, says=(f"{part.name} is missing: the checkpoint was written by 2 ranks",))
        self.assertFalse((self.folder / "model").exists())

    def test_a_file_is_missing(self):
        self.numbers("out", "--batch", "2", ranks=2, steps=1)
        (self.out / "latest" / "optimizer.safetensors").unlink()
        result = self.run_rooflm("launch", "-n", 2, "--", "train", "--out", self.out, "--resume", "--no-peak")
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("optimizer.safetensors", result.stderr)


class Failures(Ranks):
    def test_a_killed_rank_ends_all_and_leaves_the_last_good_checkpoint(self):
        for rank in (0, 1):
            with self.subTest(rank=rank):
                shutil.rmtree(self.out, ignore_errors=True)
                process = self.start_ranks("--steps", 100000, "--batch", "2", "--checkpoint-every", "3")
                self.wait_for_step(4)
                begin = time.monotonic()
                os.kill(self.children(process)[rank], signal.SIGKILL)
                _, errors = process.communicate(timeout=30)
                self.assertLess(time.monotonic() - begin, 15)
                self.assertEqual(process.returncode, 128 + signal.SIGKILL, errors)
                self.assertRegex(errors, rf"launch: rank {rank} \(.*\) was ended by SIGKILL")
                self.assertRegex(errors, rf"rank {1 - rank} \(.*\): rank {rank} \(.*\) has ended, at step \d+")
                self.ok("generate", "--model", self.out, "--prompt", "the cat", "--tokens", 2)
                goes_on = self.start_ranks("--resume")
                self.wait_for_step(len(numbers_of(self.out / "log.jsonl")) + 4)
                goes_on.send_signal(signal.SIGTERM)
                self.assertIn("continuing after step", goes_on.communicate(timeout=30)[1])
                self.assertEqual(goes_on.returncode, 128 + signal.SIGTERM)

    def test_a_hanging_rank_ends_all(self):
        process = self.start_ranks("--steps", 100000, "--batch", "2")
        self.wait_for_step(2)
        begin = time.monotonic()
        os.kill(self.children(process)[1], signal.SIGSTOP)
        _, errors = process.communicate(timeout=30)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(process.returncode, 5, errors)
        self.assertRegex(errors, r"rank 0 \(.*\) has waited 2 s for rank 1 \(.*\), at step \d+.*--timeout")

    def test_ranks_that_are_all_stopped_are_ended(self):
        """Nobody is left who notices, but launch."""
        process = self.start_ranks("--steps", 100000, "--batch", "2")
        self.wait_for_step(2)
        begin = time.monotonic()
        for rank in self.children(process):
            os.kill(rank, signal.SIGSTOP)
        _, errors = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 25)
        self.assertEqual(process.returncode, 5, errors)
        self.assertRegex(errors, r"launch: rank 0 \(.*, process \d+\) has been stopped for \d+ s")

    def test_under_mpirun_a_rank_that_is_lost_ends_all(self):
        """mpirun says which was killed, the others where they were; one that hangs they find themselves."""
        if shutil.which("mpirun") is None:
            self.skipTest("no mpirun on this machine (Debian package openmpi-bin)")
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "ROOFLM_TIMEOUT": "2"}
        for sent, code, says in ((signal.SIGKILL, 128 + signal.SIGKILL, r"rooflm: rank 0 \(.*\) is asked to end while it waits for rank 1 \(.*\), at step \d+, \w+ "),
                                 (signal.SIGSTOP, 5, r"rooflm: rank 0 \(.*\) has waited 2 s for rank 1 \(.*\), at step \d+, \w+ ")):
            with self.subTest(signal=sent.name):
                shutil.rmtree(self.out, ignore_errors=True)
                process = subprocess.Popen(["mpirun", "--oversubscribe", "-n", "2", self.binary, *map(str, self.words(self.out, "--steps", 100000, "--batch", "2"))],
                                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
                self.wait_for_step(2)
                ranks = [pid for pid in self.children(process) if self.variable_of(pid, "OMPI_COMM_WORLD_RANK") == "1"]
                begin = time.monotonic()
                os.kill(ranks[0], sent)
                _, errors = process.communicate(timeout=60)
                self.assertLess(time.monotonic() - begin, 30)
                self.assertEqual(process.returncode, code, errors)
                self.assertRegex(errors, says)

    @staticmethod
    def variable_of(pid, name):
        words = dict(word.partition("=")[::2] for word in pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0"))
        return words.get(name)

    def test_a_signal_stops_all_after_the_same_step(self):
        process = self.start_ranks("--steps", 100000, "--batch", "2")
        self.wait_for_step(2)
        os.killpg(process.pid, signal.SIGTERM)  # as timeout(1) does
        _, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, errors)
        self.assertIn("stopped by SIGTERM after step", errors)
        self.assertTrue((self.out / "latest" / "config.json").exists())

    def test_ranks_end_with_their_launch(self):
        process = self.start_ranks("--steps", 100000, "--batch", "2")
        self.wait_for_step(2)
        ranks = self.children(process)
        process.kill()
        process.communicate(timeout=30)
        deadline = time.monotonic() + 20
        while any(map(self.runs, ranks)) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse(any(map(self.runs, ranks)), "a rank runs on")

    @staticmethod
    def runs(pid):
        """Not of what has ended and nobody has waited for."""
        return pathlib.Path(f"/proc/{pid}/exe").exists()

    def test_degrees_that_cannot_be(self):
        for arguments, says in [(("--dp", 3), "this job has 2"), (("--tp", 3), "does not divide the 2 ranks"),
                                (("--pp", 2, "--layers", 3), "does not divide the 3 layers"),
                                (("--tp", 2, "--heads", 1), "does not divide the 1 heads"),
                                (("--cp", 3), "does not divide the 2 ranks"),
                                (("--cp", 2, "--seq", 18), "--cp 2 cuts a sequence into 4 pieces, which do not divide --seq 18"),
                                (("--cp", 2, "--attention", "batched"), "--cp 2 requires --attention flash, not batched"),
                                (("--zero", 4), "--zero must be at most 3")]:
            with self.subTest(arguments=arguments):
                result = self.run_rooflm("launch", "-n", 2, "--", *self.words(self.out, "--steps", 1, *arguments))
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(says, result.stderr)
        for degree in ("--dp", "--cp"):
            self.fails(2, *self.words(self.out, "--steps", 1, degree, 2), says=("this job has 1", "launch -n 2"))
        for command in ("eval", "generate"):
            self.fails(2, command, "--model", self.out, "--cp", 2, says=("--cp",))

    def test_launch_is_told_what_it_cannot_do(self):
        self.fails(2, "launch", "--", "train", says=("-n is missing",))
        self.fails(2, "launch", "-n", 2, says=("name a command",))
        self.fails(3, "launch", "-n", 2, "--", "/no/such/program", says=("cannot start",))
        for command in ("study", "launch", "report"):
            self.fails(2, "launch", "-n", 2, "--", command, says=(f"{command} runs on one rank", "bench, profile, train, eval, generate, comm"))
        begin = time.monotonic()
        self.fails(2, "profile", "--device", "cpu", "--model", "tiny", "--dp", 2, says=("this job has 1", "launch -n 2"))
        self.assertLess(time.monotonic() - begin, 2, "before anything is measured")
        result = self.run_rooflm("launch", "-n", 3, "--", "sh", "-c", "exit $RANK")
        self.assertIn(result.returncode, (1, 2))


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
