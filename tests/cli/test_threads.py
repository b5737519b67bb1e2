#!/usr/bin/env python3
"""Threads that the environment or the system does not give: refused, or without an effect on numbers.

Usage: test_threads.py BINARY [unittest options]"""

import os
import pathlib
import resource
import sys
import unittest

from training_runs import TINY, TrainingRuns, numbers_of

SANITIZER = os.environ.get("ROOFLM_SANITIZER")


class Threads(TrainingRuns):
    def numbers(self, name, threads=2, **variables):
        out = self.folder / name
        result = self.run_rooflm("train", "--data", self.data, "--out", out, *TINY, "--seq", 64, "--steps", 3,
                                 *(["--threads", threads] if threads else []), env={**os.environ, **variables})
        self.assertEqual(result.returncode, 0, result.stderr)
        return numbers_of(out / "log.jsonl")

    def test_smaller_teams_do_not_change_numbers(self):
        """oneDNN's GEMMs are divided by the number of threads that was asked for."""
        expected = self.numbers("whole")
        for i, variables in enumerate(({"OMP_DYNAMIC": "true"}, {"OMP_MAX_ACTIVE_LEVELS": "0"}, {"OMP_THREAD_LIMIT": "2"})):
            with self.subTest(variables=variables):
                self.assertEqual(self.numbers(f"out{i}", **variables), expected)

    def test_a_limit_of_threads(self):
        words = ["train", "--data", self.data, "--out", self.out, *TINY, "--steps", 1, "--threads", 2]
        self.fails(2, *words, env={**os.environ, "OMP_THREAD_LIMIT": "1"}, says=["--threads 2", "OMP_THREAD_LIMIT", "only 1"])
        at = TINY.index("--threads")
        words = ["train", "--data", self.data, "--out", self.out, *TINY[:at], *TINY[at + 2:], "--steps", 1]
        result = self.run_rooflm(*words, env={**os.environ, "OMP_THREAD_LIMIT": "1"})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.fails(2, "peaks", "--threads", 2, env={**os.environ, "OMP_THREAD_LIMIT": "1"}, says=["--threads 2", "at most 1"])

    @unittest.skipIf(SANITIZER == "thread", "the thread sanitizer needs another OpenMP runtime")
    def test_threads_that_wait_soon_sleep(self):
        """On a busy machine a waiting thread that spins takes the processor from the one that it waits for."""
        spins = "GOMP_SPINCOUNT = '{}'"
        own = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
        for variables, expected in (({}, 1000), ({"OMP_WAIT_POLICY": "passive"}, 0), ({"GOMP_SPINCOUNT": "7"}, 7)):
            with self.subTest(variables=variables):
                result = self.run_rooflm("--version", env={**own, **variables, "OMP_DISPLAY_ENV": "verbose"})
                self.assertIn(spins.format(expected), result.stderr)

    @unittest.skipIf(SANITIZER, "a sanitizer takes all of the address space that is limited")
    def test_threads_that_cannot_start_are_out_of_memory(self):
        """libgomp itself would end the process with 1: a check that failed."""
        def small():
            resource.setrlimit(resource.RLIMIT_AS, (400_000 << 10, 400_000 << 10))

        self.fails(4, "train", "--data", self.data, "--out", self.out, *TINY, "--steps", 1, "--threads", 64, preexec_fn=small,
                   says=["out of memory", "cannot start another thread"])


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
