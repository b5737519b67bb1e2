"""A rank that gets too little memory, at each stage: when it starts, makes its model, runs a step.

Usage: test_rank_memory.py BINARY [unittest options]"""

import sys
import unittest

from training_runs import TrainingRuns

MIB = 1024  # in the unit of ulimit -v


class Memory(TrainingRuns):
    runs = 0

    def launch(self, limit_mib, *words):
        """Two ranks, the second within so much address space: exit code and lines."""
        own = f"[ $RANK = 0 ] || ulimit -v {limit_mib * MIB}; exec \"$@\""
        result = self.run_rooflm("launch", "-n", 2, "--timeout", "60", "--", "sh", "-c", own, "sh", self.binary, *words)
        return result.returncode, result.stderr.splitlines()

    def starts(self, limit_mib):
        """Whether the program and its libraries start within it."""
        return self.launch(limit_mib, "--version")[0] == 0

    def end(self, limit_mib, *split):
        """The ranks train."""
        self.runs += 1
        words = ["train", "--data", self.data, "--out", self.folder / f"out{self.runs}", "--model", "tiny", "--layers", "2", "--d-model", "256", "--heads", "4",
                 "--d-ff", "672", "--seq", "64", "--batch", "4", "--no-peak", "--device", "cpu", "--threads", "1", "--eval-batches", "1", "--steps", "2", *split]
        return self.launch(limit_mib, *words)

    def test_a_rank_without_memory_ends_all_with_a_line(self):
        never, start = 16, 1024
        while start - never > 1:
            middle = (never + start) // 2
            never, start = (never, middle) if self.starts(middle) else (middle, start)
        for split in (("--zero", "1"), ("--pp", "2")):
            fails, works = start, 1024
            while works - fails > 16:
                middle = (fails + works) // 2
                code, lines = self.end(middle, *split)
                self.assertIn(code, (0, 4), lines)
                fails, works = (fails, middle) if code == 0 else (middle, works)
            ended = []
            for limit in (start + (fails - start) * part // 8 for part in range(9)):
                with self.subTest(split=split, limit=limit):
                    code, lines = self.end(limit, *split)
                    if code == 0 or (limit == start and not self.starts(limit)):
                        continue  # just enough, this time; or not even for the libraries
                    self.assertEqual(code, 4, lines)
                    said = [line for line in lines if line.startswith(("rooflm: ", "launch: "))]
                    self.assertEqual(len(said), 1, lines)
                    self.assertRegex(said[0], "^launch: rank 1 .* ended with exit code 4: .*(out of memory|needs .* is free memory)")
                    ended.append(limit)
            self.assertGreater(len(ended), 2)


if __name__ == "__main__":
    TrainingRuns.binary = sys.argv.pop(1)
    unittest.main(verbosity=2)
