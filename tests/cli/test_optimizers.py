#!/usr/bin/env python3
"""Optimizers and narrow moments: what they learn, how they go on, what they cost, and what cannot be.

Usage: test_optimizers.py BINARY [unittest options]"""

import json
import math
import pathlib
import shutil
import sys
import unittest

from training_runs import TrainingRuns, numbers_of

KINDS = (("--optimizer", "lion", "--lr", "0.002"), ("--optimizer", "muon"), ("--optimizer", "shampoo"),
         ("--states", "bf16"), ("--states", "8bit"), ("--optimizer", "muon", "--states", "8bit"))


class Optimizers(TrainingRuns):
    def test_runs_continue_bit_for_bit(self):
        for kind in KINDS:
            for engine in ("eager", "fused"):
                with self.subTest(kind=kind, engine=engine):
                    files = []
                    for steps in ((6,), (3, 6)):
                        shutil.rmtree(self.out, ignore_errors=True)
                        self.train(*kind, "--engine", engine, "--schedule", "constant", "--steps", steps[0])
                        for more in steps[1:]:
                            self.ok("train", "--out", self.out, "--resume", "--steps", more, "--no-peak", "--threads", 1)
                        files.append([numbers_of(self.out / "log.jsonl"),
                                      (self.out / "latest/model.safetensors").read_bytes(),
                                      (self.out / "latest/optimizer.safetensors").read_bytes()])
                    self.assertLess(files[0][0][-1]["val_loss"], math.log(300), "less than a guess")
                    for lines, *_ in files:
                        for line in lines:  # known where a run ends
                            line.pop("val_loss")
                    self.assertTrue(files[0] == files[1])

    def test_another_method_is_refused(self):
        self.train("--optimizer", "muon", "--steps", "1")
        resume = ("train", "--out", self.out, "--resume", "--no-peak")
        self.fails(2, *resume, "--optimizer", "lion", says=("--optimizer lion", "trained with muon"))
        self.fails(2, *resume, "--states", "8bit", says=("--states 8bit", "trained with fp32"))
        state = self.out / "latest/optimizer.safetensors"
        other = self.folder / "other"
        self.ok("train", "--data", self.data, "--out", other, "--model", self.out, "--seq", 16, "--batch", 2, "--steps", 1,
                "--no-peak", "--threads", 1)
        state.write_bytes((other / "latest/optimizer.safetensors").read_bytes())
        self.fails(3, *resume, "--steps", 1, says=("optimizer.safetensors",))

    def test_what_cannot_be_is_said(self):
        program = ("program", "--model", "tiny", "--device", "null")
        self.fails(2, *program, "--optimizer", "moun", says=("did you mean", "muon"))
        self.fails(2, *program, "--optimizer", "sgd", "--states", "bf16", says=("--states bf16",))
        self.fails(5, *program, "--optimizer", "muon", "--tp", 2, says=("--optimizer muon", "--tp"))
        self.fails(5, *program, "--optimizer", "shampoo", "--dtype", "fp16", says=("fp16",))

    def test_states_are_priced(self):
        """Bytes of optimizer state per parameter, and FLOPs of Muon's GEMMs."""
        def cost(*arguments):
            return json.loads(self.ok("program", "--model", "tiny", "--device", "cpu", *arguments, "--format", "json"))

        texts = {kind: json.dumps(cost(*kind)) for kind in (("--optimizer", "muon"), ("--states", "8bit"), ())}
        self.assertIn("momentum", texts["--optimizer", "muon"])
        self.assertIn("adamw_8bit", texts["--states", "8bit"])
        self.assertNotIn("momentum", texts[()])


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
