#!/usr/bin/env python3
"""A run goes on with another split than it began with: what was not typed comes from its checkpoint.

Usage: test_resumed_splits.py BINARY [unittest options]"""

import pathlib
import shutil
import sys
import unittest

from test_ranks import Ranks
from training_runs import TrainingRuns, numbers_of


class ResumedSplits(Ranks):
    """Sizes that the defaults, --batch 8 --seq 256 --grad-accum 1, do not stand for."""

    def begin(self, *arguments, ranks=1):
        """A whole run, and one that is stopped after half of its steps."""
        for name in ("whole", "half"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        arguments = (*arguments, "--schedule", "constant")
        self.whole = self.numbers("whole", *arguments, ranks=ranks, steps=6)
        self.numbers("half", *arguments, ranks=ranks, steps=3)

    def resume(self, *split, ranks):
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self.folder / "half", self.out, symlinks=True)
        starter = ["launch", "-n", ranks, "--"] if ranks > 1 else []
        return [*starter, "train", "--out", self.out, "--resume", "--steps", 6, "--no-peak", "--threads", 1, *split]

    def goes_on(self, *splits):
        for ranks, *split in splits:
            with self.subTest(split=split):
                self.ok(*self.resume(*split, ranks=ranks))
                self.expect_near(numbers_of(self.out / "log.jsonl"), self.whole, 1e-5)

    def test_sequences_that_the_default_length_does_not_stand_for(self):
        self.begin("--batch", 3, "--seq", 18, "--d-model", 48, "--heads", 3, "--d-ff", 96)
        self.goes_on((3, "--dp", 1, "--cp", 3), (3, "--cp", 3), (3, "--tp", 3, "--sequence-parallel"), (3, "--dp", 3))

    def test_micro_batches_that_the_default_number_does_not_stand_for(self):
        self.begin("--batch", 1, "--grad-accum", 4, "--layers", 4)
        self.goes_on((2, "--pp", 2, "--interleave", 2))

    def test_a_typed_part_of_a_split_goes_with_the_remembered_rest(self):
        self.begin("--batch", 2, "--grad-accum", 2, "--layers", 4, "--pp", 2, ranks=2)
        self.goes_on((2, "--interleave", 2), (1, "--pp", 1), (4, "--zero", 1, "--batch", 1))
        self.begin("--batch", 2, "--tp", 2, ranks=2)
        self.goes_on((2, "--sequence-parallel"), (2, "--tp", 1))

    def test_eager_runs_go_on_with_ranks_that_share_sequences(self):
        self.begin("--batch", 2, "--engine", "eager")
        self.goes_on((2, "--cp", 2), (2, "--cp", 2, "--attention", "flash"), (2, "--tp", 2))

        def refuses(says, *split, ranks):
            result = self.run_rooflm(*self.resume(*split, ranks=ranks))
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(says, result.stderr)

        refuses("--cp 2 requires --attention flash, not batched", "--cp", 2, "--attention", "batched", ranks=2)
        refuses("--attention flash contradicts", "--tp", 2, "--attention", "flash", ranks=2)

    def test_what_cannot_be_is_refused_with_the_sizes_of_the_run(self):
        self.begin("--batch", 3, "--seq", 18)
        for says, *split in [("--cp 2 cuts a sequence into 4 pieces, which do not divide --seq 18", "--cp", 2),
                             ("--dp 2: ", "--dp", 2), ("was trained with 3 sequences per step", "--dp", 2),
                             ("--batch must be at least 1, got 0", "--batch", 0),
                             ("takes a single configuration, the options name 2", "--batch", "3,6"),
                             ("--zero must be at most 3, got 4", "--zero", 4, "--batch", 3)]:
            with self.subTest(split=split):
                result = self.run_rooflm(*self.resume(*split, ranks=1 if "--batch" in split else 2))
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(says, result.stderr)

    def test_messages_name_options_of_train(self):
        for says, *split in [("--interleave 2 goes with the 1f1b schedule", "--interleave", 2, "--pipeline-schedule", "gpipe", "--layers", 4),
                             ("--pp 2 times --interleave 2 does not divide the 6 layers", "--interleave", 2, "--layers", 6)]:
            with self.subTest(split=split):
                result = self.run_rooflm("launch", "-n", 2, "--", *self.words(self.out, "--steps", 1, "--pp", 2, *split))
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(says, result.stderr)
                for other in ("--schedule", "--short-ends"):
                    self.assertNotIn(other, result.stderr)


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
