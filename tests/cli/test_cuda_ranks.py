"""Several ranks on one GPU, which take turns (launch --share-gpus): every split trains as one rank does, and what goes wrong ends all.

Usage: test_cuda_ranks.py BINARY [unittest options]. Times mean nothing there; numbers do. RANKS_DEVICE=cpu runs the same on processors;
with RANKS_GPUS=2, jobs of two ranks have a GPU for each.
Jobs that only start up and train run three at a time for each GPU: most of their time is that of starting."""

import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

import test_ranks
from training_runs import TrainingRuns, numbers_of

DEVICE = os.environ.get("RANKS_DEVICE", "cuda")
MODEL = ["--model", "tiny", "--layers", "2", "--d-model", "64", "--heads", "4", "--d-ff", "128", "--seq", "16", "--lr", "0.003",
         "--no-peak", "--device", DEVICE, "--eval-batches", "2", "--autotune", "none", *(["--threads", "1"] if DEVICE == "cpu" else [])]
GPUS = int(os.environ.get("RANKS_GPUS", "1"))
STEPS = 10
AT_ONCE = 3 * GPUS
ACCUMULATED = ["--grad-accum", "4"]


def sharing(ranks):
    """What `launch` has to be told where there are more ranks than GPUs."""
    return ["--share-gpus"] if ranks > GPUS else []


def missing(binary):
    """Why there is no GPU, or None."""
    if DEVICE == "cpu":
        return None
    cuda = json.loads(subprocess.run([binary, "info", "--format", "json"], capture_output=True, text=True, check=True).stdout)["cuda"]
    return None if cuda["available"] else f"SKIPPED: {cuda['reason']}"


class GpuRanks(TrainingRuns):
    @classmethod
    def setUpClass(cls):
        if reason := missing(cls.binary):
            print(reason)
            raise unittest.SkipTest(reason)
        super().setUpClass()

    def launch(self, ranks, *words, timeout="20"):
        return [self.binary, "launch", "-n", ranks, "--timeout", timeout, *sharing(ranks), "--", *words]

    def words(self, name, *arguments):
        return ["train", "--data", self.data, "--out", self.folder / name, *MODEL, *arguments]

    def numbers(self, name, *arguments, ranks=1, steps=STEPS):
        words = self.words(name, "--steps", steps, *arguments)
        command = self.launch(ranks, *words) if ranks > 1 else [self.binary, *words]
        result = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(result.returncode, 0, f"{name}: {result.stderr}")
        if ranks > 1 and DEVICE != "cpu" and GPUS == 1:
            self.assertIn("ranks take turns on cuda:0: results are correct, times are meaningless", result.stderr)
        return numbers_of(self.folder / name / "log.jsonl")

    def all_numbers(self, cases, **options):
        """Of (ranks, name, arguments...), by name; the error of one that failed in its place."""
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            jobs = {name: pool.submit(self.numbers, name, *arguments, ranks=ranks, **options) for ranks, name, *arguments in cases}
        return {name: job.exception() or job.result() for name, job in jobs.items()}

    def expect_near(self, actual, expected, tolerance):
        if isinstance(actual, Exception):
            raise actual
        self.assertEqual(len(actual), len(expected))
        for a, b in zip(actual, expected):
            self.assertEqual(a["tokens"], b["tokens"])
            for key in ("loss", "grad_norm", "val_loss"):
                if b[key] is not None:
                    self.assertLessEqual(abs(a[key] - b[key]), tolerance * abs(b[key]), (key, a, b))

    of_one = {}  # by arguments: what one rank computes, once for all tests

    def compare(self, cases, *whole, tolerance=1e-5):
        """Runs one rank with those arguments, and all cases; each is near it."""
        name = f"one{len(self.of_one)}"
        numbers = self.all_numbers([*cases, *([] if whole in self.of_one else [(1, name, *whole)])])
        expected = self.of_one.setdefault(whole, numbers.get(name))
        if isinstance(expected, Exception):
            raise expected
        for _, name, *_ in cases:
            with self.subTest(split=name):
                self.expect_near(numbers[name], expected, tolerance)
        return numbers


class First(GpuRanks):
    """What everything else needs."""

    def test_collectives_are_right(self):
        out = self.ok("launch", "-n", 2, *sharing(2), "--", "comm", "--device", DEVICE, "--size", "4KiB,1MiB", "--seconds", "0.02", "--format", "json")
        rows = json.loads(out)
        self.assertEqual({row["op"] for row in rows}, {"all_reduce", "all_gather", "reduce_scatter", "sendrecv"})
        self.assertEqual({row["wrong"] for row in rows}, {0})

    def test_a_device_twice_is_an_error_that_names_the_switch(self):
        if DEVICE == "cpu":
            self.skipTest("processors are shared anyway")
        result = self.run_rooflm("launch", "-n", 2, "--", "comm", "--device", "cuda:0", "--size", "4KiB")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(result.stderr, "would share cuda:0: .*launch --share-gpus")


class Splits(GpuRanks):
    def test_copies_and_tensor_parallel_ranks(self):
        numbers = self.compare([(2, "dp", "--batch", "4"),
                                (2, "zero1", "--zero", "1", "--batch", "4"),
                                (2, "zero2", "--zero", "2", "--batch", "4"),
                                (2, "zero3", "--zero", "3", "--batch", "4"),
                                (2, "tp", "--tp", "2", "--batch", "8"),
                                (2, "sp", "--tp", "2", "--sequence-parallel", "--batch", "8")], "--batch", "8")
        for name in ("zero1", "zero2", "zero3"):
            self.assertEqual(numbers[name], numbers["dp"], "ZeRO gives the bits of data parallel")

    def test_pipelines(self):
        self.compare([(2, "1f1b", "--pp", "2", "--batch", "2", *ACCUMULATED),
                      (2, "gpipe", "--pp", "2", "--pipeline-schedule", "gpipe", "--batch", "2", *ACCUMULATED),
                      (2, "eager", "--pp", "2", "--engine", "eager", "--batch", "2", *ACCUMULATED)], "--batch", "2", *ACCUMULATED)

    def test_interleaved_pipelines_and_more_micro_batches_than_places(self):
        four = ["--layers", "4", "--batch", "1", *ACCUMULATED]
        self.compare([(2, "interleaved", "--pp", "2", "--interleave", "2", *four)], *four)
        many = ["--batch", "1", "--grad-accum", "12"]
        self.compare([(2, "many", "--pp", "2", *many)], *many)

    def test_shared_sequences(self):
        self.compare([(2, "cp", "--cp", "2", "--batch", "8"),
                      (2, "cp_zero1", "--cp", "2", "--zero", "1", "--batch", "8")], "--batch", "8")
        grouped = ["--kv-heads", "2", "--batch", "4", "--dtype", "bf16"]
        self.compare([(2, "bf16", "--cp", "2", *grouped)], *grouped, tolerance=0.02)

    def test_gradients_of_16_bits_are_summed_in_one_dtype(self):
        """ZeRO 2 and 3 add parts of micro-batches up; a tied head has a gradient on the first and on the last stage."""
        words = ["--dtype", "bf16", "--batch", "2", *ACCUMULATED]
        numbers = self.all_numbers([(2, f"bf16_zero{zero}", "--zero", str(zero), *words) for zero in (0, 2, 3)])
        for zero in (2, 3):
            self.expect_near(numbers[f"bf16_zero{zero}"], numbers["bf16_zero0"], 1e-3)
        tied = ["--arch", "gpt2", "--dtype", "bf16", "--batch", "4"]
        self.compare([(2, "tied", "--pp", "2", *tied)], *tied, tolerance=0.02)

    def test_matrices_that_one_rank_owns(self):
        """Broadcasts and reductions to one rank; Newton-Schulz may take another GEMM for another number of matrices."""
        for optimizer in ("muon", "shampoo"):
            words = ["--optimizer", optimizer, *ACCUMULATED]
            self.compare([(2, f"{optimizer}{zero}", "--zero", str(zero), "--batch", "1", *words) for zero in (1, 2, 3)],
                         "--batch", "2", *words, tolerance=1e-4)

    def test_memory_does_not_grow_with_micro_batches(self):
        """But for their tokens: what sums are made aside of is the same memory for all."""
        size = ["bench", "--device", DEVICE, "--model", "tiny", "--layers", "4", "--d-model", "512", "--heads", "8", "--d-ff", "2048",
                "--seq", "16", "--batch", "1", "--dtype", "bf16", "--steps", "2", "--warmup", "1", "--no-peak", "--format", "json"]
        for zero in ("2", "3"):
            peaks = [json.loads(self.ok("launch", "-n", 2, *sharing(2), "--", *size, "--zero", zero, "--grad-accum", count))[0]["peak_bytes"]
                     for count in ("3", "12")]
            self.assertLess(abs(peaks[1] - peaks[0]), 0.01 * peaks[0], peaks)

    def test_hybrids_of_four(self):
        self.compare([(4, "dp_tp", "--tp", "2", "--zero", "3", "--batch", "4"),
                      (4, "dp_cp", "--dp", "2", "--cp", "2", "--batch", "4")], "--batch", "8")
        self.compare([(4, "dp_pp", "--pp", "2", "--zero", "1", "--batch", "1", *ACCUMULATED)], "--batch", "2", *ACCUMULATED)


class Orders(GpuRanks):
    def test_both_orders_give_the_same_bits_and_auto_says_what_it_chose(self):
        size = ["bench", *MODEL[:-2 if DEVICE == "cpu" else None], "--batch", "4", "--zero", "1", "--steps", "3", "--warmup", "1", "--format", "json"]
        size = [word for i, word in enumerate(size) if "--lr" not in (word, size[i - 1]) and "--eval-batches" not in (word, size[i - 1])]
        losses = {}
        for overlap in ("on", "off", "auto"):
            record = self.folder / f"{overlap}.rooflm"
            said = self.run_rooflm("launch", "-n", 2, *sharing(2), "--", *size, "--overlap", overlap, "-o", record)
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertEqual("collectives overlapped with computation: " in said.stderr, overlap == "auto")
            losses[overlap] = json.loads(self.ok("report", record, "--view", "bench", "--format", "json"))[0]["tables"][0]["rows"][0]["loss"]
        self.assertEqual(losses["on"], losses["off"])


WAYS = ("default", "few-blocks", "copy-engine")


class Ways(GpuRanks):
    def setUp(self):
        if DEVICE == "cpu":
            self.skipTest("on processors messages are copies")
        super().setUp()
        self.skip_where_nccl_is_old()

    def skip_where_nccl_is_old(self):
        """NCCL before 2.28.7 has no other ways that are right; rooflm refuses them."""
        result = self.run_rooflm("launch", "-n", 2, *sharing(2), "--", "comm", "--device", DEVICE, "--collectives", "few-blocks", "--size", "4KiB",
                                 "--seconds", "0.01")
        if result.returncode == 0:
            return
        self.assertEqual(result.returncode, 5, result.stderr)
        old = re.search(r"--collectives few-blocks: (NCCL 2\.(\d+)\.(\d+) is too old), 2\.28\.7 can do it", result.stderr)
        self.assertIsNotNone(old, result.stderr)
        self.assertLess((int(old[2]), int(old[3])), (28, 7))
        self.skipTest(old[1])

    def test_collectives_are_right_in_each_way(self):
        for way in WAYS:
            result = self.run_rooflm("launch", "-n", 2, *sharing(2), "--", "comm", "--device", DEVICE, "--collectives", way, "--dtype", "fp32,bf16",
                                     "--size", "1000,4KiB,1MiB", "--seconds", "0.02", "--format", "json")
            self.assertEqual(result.returncode, 0, f"{way}: {result.stderr}")
            rows = json.loads(result.stdout)
            self.assertEqual({row["wrong"] for row in rows}, {0}, way)
            self.assertEqual({way in row["carrier"] for row in rows}, {way != "default"})
            self.assertEqual(f"with --collectives {way} " in result.stderr, way != "default" and GPUS == 1)

    def test_each_way_trains_as_one_rank_does(self):
        numbers = self.compare([(2, f"{way}-{split}", "--collectives", way, "--batch", "4", *words) for way in WAYS
                                for split, words in (("dp", ()), ("zero1", ("--zero", "1")), ("zero2", ("--zero", "2")), ("zero3", ("--zero", "3")))],
                               "--batch", "8", tolerance=1e-6)
        for way in WAYS:
            for split in ("zero1", "zero2", "zero3"):
                self.assertEqual(numbers[f"{way}-{split}"], numbers[f"{way}-dp"], "ZeRO gives the bits of data parallel")

    def test_sums_of_two_have_the_same_bits_in_each_way(self):
        split = ["--batch", "4", "--overlap", "on"]
        for name, *more in (("f32", "--zero", "1"), ("added", "--zero", "2", *ACCUMULATED), ("bf16", "--zero", "1", "--dtype", "bf16")):
            numbers = self.all_numbers([(2, f"{name}-{way}", *split, *more, "--collectives", way) for way in WAYS])
            for way in WAYS[1:]:
                with self.subTest(split=name, way=way):
                    self.expect_near(numbers[f"{name}-{way}"], numbers[f"{name}-default"], 0)

    def test_parts_that_are_uneven_and_sums_that_are_added_to(self):
        odd = ["--d-ff", "132", *ACCUMULATED]
        self.compare([(3, "odd-copy-engine", "--collectives", "copy-engine", "--zero", "2", "--batch", "1", *odd)], "--batch", "3", *odd)
        self.compare([(2, "eager-copy-engine", "--collectives", "copy-engine", "--zero", "1", "--engine", "eager", "--batch", "2", *odd)],
                     "--batch", "4", *odd)

    def test_matrices_that_one_rank_owns(self):
        words = ["--optimizer", "muon", *ACCUMULATED]
        self.compare([(2, f"muon{zero}-{way}", "--collectives", way, "--zero", str(zero), "--batch", "1", *words)
                      for way in WAYS for zero in (1, 2)], "--batch", "2", *words, tolerance=1e-4)

    def test_auto_says_what_each_way_takes(self):
        result = self.run_rooflm(*self.launch(2, *self.words("auto", "--steps", 50, "--batch", "4", "--zero", "1", "--collectives", "auto"))[1:])
        self.assertEqual(result.returncode, 0, result.stderr)
        said = [line for line in (result.stderr + result.stdout).splitlines() if "collectives overlapped with computation: " in line]
        self.assertEqual(len(said), 1, result.stderr)
        self.assertIn("overlapped with computation (few-blocks): ", said[0])
        self.assertEqual("copy-engine" in said[0], GPUS > 1, "GPUs that are shared cannot copy so")
        self.assertIn("; kept: ", said[0])


class PeerMemory(GpuRanks):
    """Updates that read the gradients of all ranks where they are."""

    def expect_bits_of_default(self, prefix, splits, *arguments):
        cases = [(2, f"{prefix}-{split}-{way}", "--batch", "4", *words, *arguments, "--overlap", "on", "--collectives", way)
                 for split, words in splits.items() for way in ("default", "peer-memory")]
        numbers = self.all_numbers(cases)
        for split in splits:
            with self.subTest(split=split, arguments=arguments):
                self.expect_near(numbers[f"{prefix}-{split}-peer-memory"], numbers[f"{prefix}-{split}-default"], 0)

    def test_sums_have_the_bits_of_collectives(self):
        splits = {"dp": (), "zero1": ("--zero", "1"), "zero3": ("--zero", "3")}
        self.expect_bits_of_default("f32", splits, "--clip", "0")
        self.expect_bits_of_default("bf16", splits, "--clip", "0", "--dtype", "bf16")
        self.expect_bits_of_default("clipped", splits, "--dtype", "bf16")

    def test_sums_of_several_micro_batches_and_uneven_parts(self):
        odd = ["--d-ff", "132", "--clip", "0", *ACCUMULATED]
        self.compare([(3, "odd", "--collectives", "peer-memory", "--zero", "1", "--batch", "1", *odd),
                      (3, "odd-dp", "--collectives", "peer-memory", "--batch", "1", *odd)], "--batch", "3", *odd)

    def test_a_lost_rank_ends_all(self):
        code, errors, seconds = Failures.end(self, "killed", 1, signal.SIGKILL, "--zero", "1", "--clip", "0", "--collectives", "peer-memory")
        self.assertEqual(code, 128 + signal.SIGKILL, errors)
        self.assertRegex(errors, r"rank 0 \(.*\): rank 1 \(.*\) has ended, at step \d+")
        self.assertLess(seconds, 30)

    start = lambda self, *words, **more: Failures.start(self, *words, **more)


class Profiles(GpuRanks):
    def test_all_ranks_are_on_one_clock(self):
        record = self.folder / "zero1.rooflm"
        size = ["--model", "tiny", "--layers", "2", "--vocab", "512", "--batch", "2", "--seq", "64", "--device", DEVICE, "--autotune", "none"]
        self.ok("launch", "-n", 2, *sharing(2), "--", "profile", *size, "--zero", "1", "--overlap", "on", "--steps", 3, "-o", record, "--view", "overview")
        self.ok("verify", record)
        if DEVICE != "cpu" and GPUS == 1:
            self.assertIn("times are meaningless", self.ok("report", record, "--view", "overview"))
        calls, ranks = test_ranks.Profiles.cells(self, record)
        self.assertEqual({row["op"] for row in calls} & {"reduce_scatter", "all_gather"}, {"reduce_scatter", "all_gather"})
        for row in calls:
            self.assertAlmostEqual(row["time_us"], row["waiting_us"] + row["transfer_us"], places=3)
            self.assertGreaterEqual(row["waiting_us"], 0)
        self.assertEqual([row["rank"] for row in ranks], [0, 1])
        self.assertAlmostEqual(sum(row["last"] for row in ranks), 1)
        for row in ranks:
            self.assertAlmostEqual(row["step_us"], row["own_us"] + row["transfer_us"] + row["waiting_us"], places=3)
        test_ranks.Profiles.check_other_ranks(self, record, 2)
        page = self.folder / "page.html"
        self.ok("report", record, "--html", page)
        self.assertIn("exposed communication", page.read_text())


class Checkpoints(GpuRanks):
    def test_another_split_goes_on(self):
        arguments = ["--batch", "4", "--schedule", "constant"]
        whole = self.numbers("whole", "--batch", "8", "--schedule", "constant", steps=6)
        self.numbers("out", *arguments, "--zero", "1", "--checkpoint-layout", "parts", ranks=2, steps=3)
        resume = self.run_rooflm("launch", "-n", 2, *sharing(2), "--", "train", "--out", self.out, "--resume", "--steps", 6, "--no-peak", "--device", DEVICE,
                                 "--autotune", "none", "--dp", 1, "--tp", 2, "--zero", 0, "--batch", 8)
        self.assertEqual(resume.returncode, 0, resume.stderr)
        self.expect_near(numbers_of(self.out / "log.jsonl"), whole, 1e-5)
        evaluate = ["eval", "--model", self.out, "--data", self.data, "--batch", 2, "--seq", 16, "--batches", 4, "--device", DEVICE, "--format", "json"]
        one, two = (json.loads(self.ok(*starter, *evaluate))[0]["loss"] for starter in ((), ("launch", "-n", 2, *sharing(2), "--")))
        self.assertAlmostEqual(one, two, places=5)
        generate = ["generate", "--model", self.out, "--prompt", "the cat", "--prompt", "a dog", "--tokens", 8, "--temperature", 0, "--device", DEVICE]
        texts = [self.ok(*starter, *generate, *split) for starter, split in
                 (((), ()), (("launch", "-n", 2, *sharing(2), "--"), ("--tp", 2)))]
        self.assertEqual(*texts)


class Failures(GpuRanks):
    def start(self, name, *arguments, timeout):
        return subprocess.Popen([*map(str, self.launch(2, *self.words(name, "--steps", 100000, "--batch", "2", *arguments), timeout=timeout))],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def end(self, name, rank, sent, *arguments, timeout="30"):
        """Sends a signal to one rank of a job that trains; exit code, messages, and how long it took to end."""
        process = self.start(name, *arguments, timeout=timeout)
        self.addCleanup(process.kill)
        log = self.folder / name / "log.jsonl"
        deadline = time.monotonic() + 60
        while not log.exists() or len(log.read_text().splitlines()) < 3:
            self.assertLess(time.monotonic(), deadline, "no step was logged")
            self.assertIsNone(process.poll(), process.stderr.read() if process.poll() is not None else "")
            time.sleep(0.05)
        ranks = [int(pid) for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        os.kill(ranks[rank], sent)
        begin = time.monotonic()
        errors = process.communicate(timeout=60)[1]
        return process.returncode, errors, time.monotonic() - begin

    def test_a_rank_that_is_killed_or_stopped_ends_all(self):
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            killed = pool.submit(self.end, "killed", 1, signal.SIGKILL, "--zero", "1")
            stopped = pool.submit(self.end, "stopped", 1, signal.SIGSTOP, timeout="8")
            stage = pool.submit(self.end, "stage", 0, signal.SIGKILL, "--pp", "2", "--grad-accum", "2")
        code, errors, seconds = killed.result()
        self.assertEqual(code, 128 + signal.SIGKILL, errors)
        self.assertRegex(errors, r"launch: rank 1 \(.*\) was ended by SIGKILL")
        self.assertRegex(errors, r"rank 0 \(.*\): rank 1 \(.*\) has ended, at step \d+, ")
        self.assertLess(seconds, 30)
        code, errors, seconds = stopped.result()
        self.assertEqual(code, 5, errors)
        self.assertRegex(errors, r"rank 0 \(.*\) has waited 8 s for rank 1 \(.*\), at step \d+, ")
        self.assertLess(seconds, 30)
        code, errors, seconds = stage.result()
        self.assertEqual(code, 128 + signal.SIGKILL, errors)
        self.assertRegex(errors, r"rank 1 \(.*\): rank 0 \(.*\) has ended, at step \d+, ")
        self.assertLess(seconds, 30)

    def test_out_of_memory_is_a_line(self):
        """By what is asked for, and where others have taken the GPU's memory: when a rank starts, makes its model, joins, or runs a step."""
        result = self.run_rooflm(*self.launch(2, *self.words("limit", "--steps", 2, "--batch", "2", "--memory-limit", "1MB"))[1:])
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertRegex(result.stderr, "needs .* the limit is 1")
        if DEVICE == "cpu":
            return
        ends = []
        for left_mb in (300, 1500):
            with Hog(left_mb << 20):
                result = self.run_rooflm(*self.launch(2, *self.words(f"left{left_mb}", "--steps", 2, "--batch", "2"))[1:])
            lines = [line for line in result.stderr.splitlines() if "memory" in line and not line.startswith("launch")]
            ends.append((left_mb, result.returncode, lines[:2]))
            if result.returncode != 0:
                self.assertEqual(result.returncode, 4, result.stderr)
                self.assertGreaterEqual(len(lines), 1, result.stderr)
        print(ends)
        self.assertEqual(ends[0][1], 4, ends)


class Hog:
    """Has the GPU's memory but for so many bytes."""

    def __init__(self, left):
        self.left = left

    def __enter__(self):
        program = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total, memory = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
for call in (lambda: cuda.cuInit(0), lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), lambda: cuda.cuCtxSetCurrent(context),
             lambda: cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)),
             lambda: cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(free.value - int(sys.argv[1])))):
    assert call() == 0
print("taken", flush=True)
sys.stdin.read()
"""
        self.process = subprocess.Popen([sys.executable, "-c", program, str(self.left)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "taken\n"

    def __exit__(self, *_):
        self.process.communicate("", timeout=30)


if __name__ == "__main__":
    TrainingRuns.binary = sys.argv.pop(1)
    unittest.main(verbosity=2)
