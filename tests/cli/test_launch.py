#!/usr/bin/env python3
"""What `rooflm launch` says of its ranks, and what they cannot have.

Usage: test_launch.py BINARY [unittest options]"""

import os
import pathlib
import pty
import signal
import subprocess
import sys
import unittest

from test_ranks import Ranks
from training_runs import TrainingRuns


class Launch(Ranks):
    def test_the_stopped_rank_is_the_cause(self):
        """Not the one that has waited for it."""
        for rank in (0, 1):
            with self.subTest(rank=rank):
                self.out = self.folder / str(rank)
                process = self.start_ranks("--steps", 100000, "--batch", "2")
                self.wait_for_step(2)
                os.kill(self.children(process)[rank], signal.SIGSTOP)
                _, errors = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 5, errors)
                self.assertRegex(errors, rf"launch: rank {rank} \(.*, process \d+\) has been stopped for \d+ s")
                self.assertNotIn("ended with exit code", errors)

    def test_a_terminal_has_no_prompts_for_ranks(self):
        """They are in the background of it: the system would stop the one that reads."""
        self.train("--steps", 1)
        leader, follower = pty.openpty()
        self.addCleanup(os.close, leader)
        words = ["launch", "-n", "2", "--timeout", "5", "--", "generate", "--model", self.out, "--tokens", "1", "--prompts", "-"]
        process = subprocess.Popen([self.binary, *map(str, words)], stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True)
        os.close(follower)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2, errors)
        self.assertIn("--prompts -: ranks of launch cannot read a terminal; give a file or a pipe", errors)
        self.assertIn("the cat", subprocess.run([self.binary, *map(str, words)], input="the cat\n", capture_output=True, text=True,
                                                timeout=60, check=True).stdout)


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
