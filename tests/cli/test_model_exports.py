#!/usr/bin/env python3
"""The model of a checkpoint as a Hugging Face directory: what is there stays, and what cannot be done is said.

Usage: test_model_exports.py BINARY [unittest options]"""

import pathlib
import sys
import unittest

from test_ranks import Ranks
from training_runs import TrainingRuns


class ModelExports(Ranks):
    def test_exporting_leaves_what_is_there(self):
        """Unfinished models of others, too: only folders that the command made itself are removed."""
        self.numbers("out", "--batch", "2", "--checkpoint-layout", "parts", ranks=2, steps=1)
        model = self.folder / "model"
        others = [self.folder / "model.tmp", self.folder / ".model.rooflm-tmp"]
        for other in others:
            other.mkdir()
            (other / "mine").write_text("mine")
        export = ("export", self.out, "--format", "huggingface", "-o")
        self.fails(2, *export, "-", says=("cannot go to standard output",))
        self.fails(2, *export, model, "--overwrite", says=("--overwrite",))
        self.fails(2, *export, self.data, "--dry-run", says=("exists already",))
        self.ok(*export, model, "--dry-run")
        self.assertFalse(model.exists())
        before = sorted(self.folder.iterdir())
        self.ok(*export, f"{model}/")
        self.assertEqual(sorted(self.folder.iterdir()), sorted([*before, model]))
        for other in others:
            self.assertEqual((other / "mine").read_text(), "mine")

    def test_exporting_is_told_what_it_cannot_do(self):
        self.numbers("out", "--batch", "2", ranks=2, steps=1)
        model = self.folder / "model"
        self.fails(2, "export", self.out, "--format", "huggingface", "-o", model, says=("has the layout",))
        self.fails(3, "export", self.data, "--format", "huggingface", "-o", model, says=("is not a checkpoint",))
        self.fails(2, "export", self.out, "--format", "huggingface", "-o", self.data, says=("exists already",))


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
