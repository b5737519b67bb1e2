"""Several ranks on one GPU, which take turns (launch --share-gpus): every split trains as one rank does, and what goes wrong ends all.

Usage: test_cuda_ranks.py BINARY [unittest options]. Times mean nothing there; numbers do. RANKS_DEVICE=cpu runs the same on processors.
Jobs that only start up and train run three at a time: most of their time is that of starting."""

import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from training_runs import TrainingRuns, numbers_of

DEVICE = os.environ.get("RANKS_DEVICE", "cuda")
MODEL = ["--model", "tiny", "--layers", "2", "--d-model", "64", "--heads", "4", "--d-ff", "128", "--seq", "16", "--lr", "0.003",
         "--no-peak", "--device", DEVICE, "--eval-batches", "2", "--search-products", "none", *(["--threads", "1"] if DEVICE == "cpu" else [])]
SHARE = ["--share-gpus"]
STEPS = 12
AT_ONCE = 3


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
        return [self.binary, "launch", "-n", ranks, "--timeout", timeout, *SHARE, "--", *words]

    def words(self, name, *arguments):
        return ["train", "--data", self.data, "--out", self.folder / name, *MODEL, *arguments]

    def numbers(self, name, *arguments, ranks=1, steps=STEPS):
        words = self.words(name, "--steps", steps, *arguments)
        command = self.launch(ranks, *words) if ranks > 1 else [self.binary, *words]
        result = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(result.returncode, 0, f"{name}: {result.stderr}")
        if ranks > 1 and DEVICE != "cpu":
            self.assertIn("ranks share cuda:0, in turn: numbers are right, times mean nothing", result.stderr)
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

    def compare(self, cases, whole, tolerance=1e-5, **options):
        """Runs one rank and all cases; each is near it."""
        numbers = self.all_numbers([whole, *cases], **options)
        if isinstance(numbers[whole[1]], Exception):
            raise numbers[whole[1]]
        for _, name, *_ in cases:
            with self.subTest(split=name):
                self.expect_near(numbers[name], numbers[whole[1]], tolerance)
        return numbers


class First(GpuRanks):
    """What everything else needs."""

    def test_collectives_are_right(self):
        out = self.ok("launch", "-n", 2, *SHARE, "--", "comm", "--device", DEVICE, "--size", "4KiB,1MiB", "--seconds", "0.02", "--format", "json")
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
                                (2, "sp", "--tp", "2", "--sequence-parallel", "--batch", "8")], (1, "whole", "--batch", "8"))
        for name in ("zero1", "zero2", "zero3"):
            self.assertEqual(numbers[name], numbers["dp"], "ZeRO gives the bits of data parallel")

    def test_pipelines(self):
        accumulated = ["--grad-accum", "4"]
        self.compare([(2, "1f1b", "--pp", "2", "--batch", "2", *accumulated),
                      (2, "gpipe", "--pp", "2", "--pipeline-schedule", "gpipe", "--batch", "2", *accumulated),
                      (2, "interleaved", "--pp", "2", "--interleave", "2", "--layers", "4", "--batch", "2", *accumulated),
                      (2, "eager", "--pp", "2", "--engine", "eager", "--batch", "2", *accumulated)][:2],
                     (1, "whole", "--batch", "2", *accumulated))
        self.compare([(2, "interleaved", "--pp", "2", "--interleave", "2", "--layers", "4", "--batch", "2", *accumulated)],
                     (1, "whole4", "--layers", "4", "--batch", "2", *accumulated))
        self.compare([(2, "eager", "--pp", "2", "--engine", "eager", "--batch", "2", *accumulated)],
                     (1, "whole_eager", "--engine", "eager", "--batch", "2", *accumulated))


if __name__ == "__main__":
    TrainingRuns.binary = sys.argv.pop(1)
    unittest.main(verbosity=2)
