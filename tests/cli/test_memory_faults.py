#!/usr/bin/env python3
"""Each allocation fails in turn, once and from then on: exit code 4, one line, whole files, no process left.

Usage: test_memory_faults.py BINARY MEMORY_INJECTOR_LIBRARY [unittest options]. FAULT_PLACES=n tries n places of each
command (40). What the libraries do while they are loaded, and what oneDNN does, is left out: they end programs by
themselves."""

import os
import pathlib
import signal
import sys
import unittest

from training_runs import TrainingRuns

PLACES = int(os.environ.get("FAULT_PLACES", "40"))
MODEL = ["--model", "tiny", "--layers", "1", "--d-model", "32", "--heads", "2", "--d-ff", "64", "--vocab", "256", "--batch", "1", "--seq", "16"]


class MemoryFaults(TrainingRuns):
    library = ""

    def run_with(self, command, at=0, lasts=False):
        environment = {**os.environ, "LD_PRELOAD": self.library, "FAULT_AT": str(at), "FAULT_COUNT": str(self.folder / "count")}
        if lasts:
            environment["FAULT_LASTS"] = "1"
        return self.run_rooflm(*command, env=environment)

    def count(self, command):
        result = self.run_with(command)
        self.assertEqual(result.returncode, 0, result.stderr)
        return int((self.folder / "count").read_text())

    def each(self, *command):
        """Yields after each fault, which must have ended the command with its line, or have changed nothing."""
        start, end = self.count(["--version"]), self.count(command)
        self.assertGreater(end, start)
        failed = 0
        for at in range(start, end, max(1, (end - start) // PLACES)):
            for lasts in (False, True):
                with self.subTest(command=command[0], at=at, lasts=lasts):
                    result = self.run_with(command, at, lasts)
                    if "Cannot allocate memory" not in result.stderr:  # else: a system call said so for a file
                        self.assertIn(result.returncode, (0, 4), result.stderr)
                    failed += result.returncode == 4
                    if result.returncode == 4:
                        self.assertRegex(result.stderr, "(?m)^rooflm: (rank . .*: )?out of memory")
                    yield
        self.assertGreater(failed, min(PLACES, end - start))

    def test_plans(self):
        page = self.folder / "plan.html"
        for _ in self.each("plan", "--model", "gpt2", "--device", "h100-sxm", "--gpus", "8", "--html", page, "--overwrite"):
            self.assertFalse(page.exists() and not page.read_text().rstrip().endswith("</html>"))

    def test_records_are_not_called_damaged(self):
        record = self.folder / "r.rooflm"
        self.ok("bench", *MODEL, "--device", "cpu", "--steps", "3", "--no-peak", "-o", record)
        for command in (["report", record], ["verify", record], ["compare", record, record]):
            for _ in self.each(*command):
                pass
        trace = self.folder / "trace.json"
        for _ in self.each("export", record, "--format", "kineto", "-o", trace, "--overwrite"):
            pass
        self.ok("verify", record)

    def test_preparing_leaves_the_old(self):
        book = self.folder / "book.txt"
        book.write_text("the cat sat on the mat. " * 200)
        data = self.folder / "data"
        self.ok("data", "prepare", book, "-o", data, "--vocab", "270")
        for _ in self.each("data", "prepare", book, "-o", data, "--vocab", "270", "--overwrite"):
            self.ok("data", "info", data)

    def test_launch_ends_all_that_it_started(self):
        command = ["launch", "-n", "3", "--", "bench", *MODEL, "--device", "cpu", "--threads", "1", "--steps", "2", "--no-peak"]
        start, end = self.count(["--version"]), self.count(command)
        for at in range(start, end, max(1, (end - start) // (3 * PLACES))):
            result = self.run_with(command, at)  # of launch and of the ranks
            self.assertIn(result.returncode, (0, 4, 5), f"at {at}: {result.stderr}")
            self.assertNotEqual(result.returncode, -signal.SIGSEGV)


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    MemoryFaults.library = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
