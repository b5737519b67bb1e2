#!/usr/bin/env python3
"""Runs that are killed or interrupted: what was measured is kept, and who interrupts is told what happens.

Usage: test_interrupts.py BINARY [unittest options]"""

import json
import os
import pathlib
import pty
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

BINARY = ""
SMALL = ["--model", "tiny", "--layers", "2", "--d-model", "64", "--d-ff", "128", "--heads", "2", "--vocab", "256",
         "--batch", "2", "--seq", "32"]


class Interrupts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="rooflm-interrupts-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"))

    def wait_for_a_run(self, path):
        """Until the record has one: its ceilings are measured and it is about to step."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
                    if db.execute("SELECT COUNT(*) FROM run").fetchone()[0] > 0:
                        return
            except sqlite3.Error:
                pass
            time.sleep(0.05)
        self.fail("no run began")

    def test_killed_runs_leave_a_record_that_opens(self):
        path = self.folder / "killed.rooflm"
        process = subprocess.Popen([BINARY, "profile", *SMALL, "--max-steps", "100000", "--precision", "0",
                                    "--max-seconds", "60", "-o", str(path)], stderr=subprocess.PIPE, env=self.environment)
        self.wait_for_a_run(path)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        shown = subprocess.run([BINARY, "report", path, "--view", "overview"], capture_output=True, text=True, timeout=60, env=self.environment, check=True)
        self.assertIn("partial", shown.stdout.lower())

    def test_interrupted_runs_keep_what_was_measured(self):
        for command in (["profile", "--max-steps", "100000", "--precision", "0", "--max-seconds", "60"], ["bench", "--no-peak", "--steps", "100000000"]):
            path = self.folder / f"interrupted_{command[0]}.rooflm"
            process = subprocess.Popen([BINARY, *command, *SMALL, "-o", str(path)], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, env=self.environment)
            self.wait_for_a_run(path)
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            shown, said = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, said)
            self.assertIn(b"interrupted", shown)
            with sqlite3.connect(path) as db:
                self.assertEqual(db.execute("SELECT status FROM run").fetchone()[0], "interrupted")
                self.assertGreater(db.execute("SELECT COUNT(*) FROM sample").fetchone()[0], 0)

    # A step of many minutes.
    LONG = ["--model", "tiny", "--batch", "16", "--threads", "1", "--device", "cpu", "--no-peak", "--steps", "1"]

    def ends_soon(self, process, begin):
        """Within a second or two, on a machine that others use, too."""
        shown, said = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 30, said)
        return shown.decode(), said.decode()

    def test_a_step_of_minutes_is_left(self):
        for command in (["bench"], ["profile"]):
            path = self.folder / f"left_{command[0]}.rooflm"
            words = [word for word in self.LONG if command == ["bench"] or word != "--no-peak"]
            process = subprocess.Popen([BINARY, *command, *words, "--grad-accum", "1000", "-o", str(path)], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, env=self.environment)
            self.wait_for_a_run(path)
            time.sleep(2)
            begin = time.monotonic()
            process.send_signal(signal.SIGTERM)
            _, said = self.ends_soon(process, begin)
            self.assertEqual(process.returncode, 143, said)
            self.assertIn("interrupted: 0 of 1 configurations were measured" if command == ["bench"] else "interrupted", said)

    def test_planning_of_minutes_is_left(self):
        process = subprocess.Popen([BINARY, "bench", "--model", "tiny", "--layers", "100000", "--device", "cpu", "--no-peak", "--steps", "1"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment)
        process.stderr.readline()  # it plans
        time.sleep(2)
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, said = self.ends_soon(process, begin)
        self.assertEqual(process.returncode, 143, said)

    def test_a_step_longer_than_the_limit_is_left(self):
        """And the configurations after it are measured."""
        begin = time.monotonic()
        process = subprocess.Popen([BINARY, "bench", *self.LONG, "--grad-accum", "1000,1", "--seq", "16", "--max-seconds", "1", "--format", "json"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment)
        shown, said = self.ends_soon(process, begin)
        self.assertEqual(process.returncode, 0, said)
        self.assertIn("a step takes longer than 2.00 s: not timed", said)
        left, timed = json.loads(shown)
        self.assertEqual((left["status"], left["step_ms_mean"]), ("interrupted", None))
        self.assertEqual(timed["status"], "success")
        self.assertGreater(timed["step_ms_mean"], 0)

    def test_who_interrupts_at_a_terminal_is_told_how_to_end_it(self):
        path = self.folder / "interrupted_at_a_terminal.rooflm"
        leader, follower = pty.openpty()
        self.addCleanup(os.close, leader)
        process = subprocess.Popen([BINARY, "bench", "--steps", "100000000", *SMALL, "-o", str(path)], stdout=subprocess.DEVNULL,
                                   stderr=follower, env=self.environment)
        os.close(follower)
        self.wait_for_a_run(path)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 130)
        self.assertIn(b"stopping after what is running now; Ctrl-C again ends it at once", os.read(leader, 65536))


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
