#!/usr/bin/env python3
"""Runs that are killed or interrupted: what was measured is kept, and who interrupts is told what happens.

Usage: test_interrupts.py BINARY [unittest options]"""

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
        for command in (["profile", "--max-steps", "100000", "--precision", "0", "--max-seconds", "60"], ["bench", "--steps", "100000000"]):
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
