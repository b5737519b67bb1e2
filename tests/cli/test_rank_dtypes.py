#!/usr/bin/env python3
"""Ranks that train in 16 bits: what they add up.

Usage: test_rank_dtypes.py BINARY [unittest options]"""

import pathlib
import sys
import unittest

from test_ranks import Ranks
from training_runs import TrainingRuns


class RankDtypes(Ranks):
    def test_gradients_of_16_bits_are_summed_in_one_dtype(self):
        """ZeRO 2 and 3 add parts of micro-batches up; a tied head has a gradient on the first and on the last stage."""
        accumulated = ["--grad-accum", "2", "--batch", "2"]
        for dtype in ("bf16", "fp16"):
            with self.subTest(dtype=dtype):
                whole = self.numbers(f"{dtype}_dp", *accumulated, "--dtype", dtype, ranks=2, steps=5)
                for zero in (2, 3):
                    numbers = self.numbers(f"{dtype}_zero{zero}", *accumulated, "--dtype", dtype, "--zero", zero, ranks=2, steps=5)
                    self.expect_near(numbers, whole, 1e-3)
        tied = ["--arch", "gpt2", "--dtype", "bf16", "--batch", "4"]
        whole = self.numbers("tied", *tied, steps=5)
        self.expect_near(self.numbers("tied_pp", *tied, "--pp", "2", ranks=2, steps=5), whole, 0.01)
        self.expect_near(self.numbers("tied_dp_pp", *tied[:-1], "2", "--pp", "2", "--zero", "1", ranks=4, steps=5), whole, 0.01)


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
