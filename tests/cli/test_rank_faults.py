"""Ranks that stop, or are slow, while a checkpoint is written.

Usage: test_rank_faults.py BINARY FAULT_INJECTOR_LIBRARY [unittest options]."""

import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from test_ranks import Ranks
from training_runs import TrainingRuns, numbers_of

TIMEOUT = 1.5


class Checkpoints(Ranks):
    library = ""

    def start_with(self, act, at, *arguments, ranks=2, step=2):
        """Ranks that write a checkpoint after each step; the fault happens in the one of `step`."""
        environment = {**os.environ, "LD_PRELOAD": self.library, "FAULT_CALLS": "write,fsync", "FAULT_DO": act,
                       "FAULT_PATH": str(self.out / f"checkpoint-{step:06}.tmp"), "FAULT_AT": str(at)}
        words = self.words(self.out, "--batch", "2", "--checkpoint-every", "1", *arguments)
        return subprocess.Popen([self.binary, "launch", "-n", str(ranks), "--timeout", str(TIMEOUT), "--", *map(str, words)],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)

    def wait_for(self, path):
        deadline = time.monotonic() + 60
        while not path.exists():
            self.assertLess(time.monotonic(), deadline, f"no {path}")
            time.sleep(0.01)

    def expect_end(self, process, *says):
        """It ends in time, says what is said, and goes on from the checkpoint before."""
        begin = time.monotonic()
        _, errors = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(process.returncode, 5, errors)
        for text in says:
            self.assertRegex(errors, text)
        self.assertTrue((self.out / "checkpoint-000001" / "state.json").exists())
        self.ok("launch", "-n", 2, "--", "train", "--out", self.out, "--resume", "--no-peak")
        self.assertEqual([line["step"] for line in numbers_of(self.out / "log.jsonl")], [1, 2, 3, 4])

    def test_the_rank_that_writes_hangs(self):
        process = self.start_with("stop", 8, "--steps", 4)
        self.expect_end(process, r"rank 1 \(.*\) has waited 2.5 s for rank 0 \(.*\), at step 2, waiting for the checkpoint")

    def test_a_rank_whose_parts_are_needed_hangs(self):
        process = self.start_with("slow150", 1, "--steps", 4, ranks=3)
        self.wait_for(self.out / "checkpoint-000002.tmp")
        os.kill(self.children(process)[1], signal.SIGSTOP)
        self.expect_end(process, r"rank 0 \(.*\) has waited 1.5 s for rank 1 \(.*\), at step 2, gathering \S+ for a checkpoint",
                        r"rank 2 \(.*\): rank 0 \(.*\) has failed")

    def test_a_disk_that_is_slow_is_waited_for(self):
        begin = time.monotonic()
        process = self.start_with("slow200", 1, "--steps", 3)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, errors)
        self.assertGreater(time.monotonic() - begin, 3 * TIMEOUT)


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    Checkpoints.library = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
