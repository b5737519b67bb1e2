#!/usr/bin/env python3
"""What `rooflm launch` says of its ranks, and what they cannot have.

Usage: test_launch.py BINARY [unittest options]"""

import os
import pathlib
import pty
import shutil
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

    @staticmethod
    def messages(errors):
        return [line for line in errors.splitlines() if line.startswith(("rooflm: ", "launch: "))]

    def start_four(self, *words, program=()):
        """Ranks that train until the third is done for; `program` begins the command of a rank."""
        command = [self.binary, "launch", "-n", "4", "--timeout", "2", "--", *program, *map(str, words)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def test_a_lost_rank_is_one_message(self):
        """Of launch, which names it, its host and the cause, however many have noticed it."""
        for sent, code, says in ((signal.SIGKILL, 137, "was ended by SIGKILL.*; rank . .*: rank 2 .* has ended, at step"),
                                 (signal.SIGSTOP, 5, r"has been stopped for \d+ s; rank . .* has waited 2 s for rank 2 .*, at step")):
            with self.subTest(sent=sent.name):
                self.out = self.folder / sent.name
                process = self.start_four(*self.words(self.out, "--steps", 100000, "--batch", "1"))
                self.wait_for_step(2)
                os.kill(self.children(process)[2], sent)
                _, errors = process.communicate(timeout=60)
                self.assertEqual(process.returncode, code, errors)
                lines = self.messages(errors)
                self.assertEqual(len(lines), 1, errors)
                self.assertRegex(lines[0], rf"^launch: rank 2 \(.*, process \d+\) {says}")

    def test_a_rank_whose_file_is_broken_is_one_message(self):
        for rank in range(4):
            shutil.copytree(self.data, self.folder / f"data{rank}")
        for shard in (self.folder / "data2").glob("train_*.bin"):
            shard.write_bytes(b"damaged")
        words = [word if word != self.data else f"{self.folder}/data$RANK" for word in self.words(self.out, "--steps", 4, "--batch", "1")]
        process = self.start_four("sh", "-c", f"exec {self.binary} {' '.join(map(str, words))}")
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 3, errors)
        lines = self.messages(errors)
        self.assertEqual(len(lines), 1, errors)
        self.assertRegex(lines[0], r"^launch: rank 2 \(.*, process \d+\) ended with exit code 3: .*data2/train_000000.bin")

    def test_what_all_ranks_refuse_is_one_message(self):
        process = self.start_four(*self.words(self.out, "--steps", 4, "--batch", "1", "--lr", "x"))
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2, errors)
        lines = self.messages(errors)
        self.assertEqual(len(lines), 1, errors)
        self.assertRegex(lines[0], r"^launch: rank \d .* ended with exit code 2: --lr")

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
