"""A rank that gets too little memory, at each stage: when it starts, makes its model, runs a step.

Usage: test_rank_memory.py BINARY [unittest options]"""

import sys
import unittest

from training_runs import TrainingRuns

MIB = 1024  # in the unit of ulimit -v


class Memory(TrainingRuns):
    runs = 0

    def end(self, limit_mib, *split):
        """Two ranks train, the second within so much address space: exit code and lines."""
        self.runs += 1
        words = ["train", "--data", self.data, "--out", self.folder / f"out{self.runs}", "--model", "tiny", "--layers", "2", "--d-model", "256", "--heads", "4",
                 "--d-ff", "672", "--seq", "64", "--batch", "4", "--no-peak", "--device", "cpu", "--threads", "1", "--eval-batches", "1", "--steps", "2", *split]
        own = f"[ $RANK = 0 ] || ulimit -v {limit_mib * MIB}; exec \"$@\""
        result = self.run_rooflm("launch", "-n", 2, "--timeout", "60", "--", "sh", "-c", own, "sh", self.binary, *words)
        return result.returncode, result.stderr.splitlines()

    def test_a_rank_without_memory_ends_all_with_a_line(self):
        for split in (("--zero", "1"), ("--pp", "2")):
            fails, works = 16, 1024
            while works - fails > 16:
                middle = (fails + works) // 2
                code, lines = self.end(middle, *split)
                self.assertIn(code, (0, 4, 127), lines)  # anything else is no answer
                fails, works = (fails, middle) if code == 0 else (middle, works)
            never, starts = 16, fails  # with how much the program and its libraries start
            while starts - never > 2:
                middle = (never + starts) // 2
                never, starts = (middle, starts) if self.end(middle, *split)[0] == 127 else (never, middle)
            ended = []
            for limit in [never // 2, never, *(starts + (fails - starts) * part // 6 for part in range(7))]:
                with self.subTest(split=split, limit=limit):
                    code, lines = self.end(limit, *split)
                    if code in (0, 127):
                        continue  # just enough, this time; too little for the program and its libraries
                    self.assertEqual(code, 4, lines)
                    own = [line for line in lines if line.startswith("rooflm: rank 1")]
                    self.assertEqual(len(own), 1, lines)
                    self.assertRegex(own[0], "out of memory|needs .* is free memory")
                    self.assertTrue(any(line.startswith("launch: rank 1") and "ended with exit code 4" in line for line in lines), lines)
                    ended.append(limit)
            self.assertGreater(len(ended), 2)


if __name__ == "__main__":
    TrainingRuns.binary = sys.argv.pop(1)
    unittest.main(verbosity=2)
