#!/usr/bin/env python3
"""Muon and Shampoo with ZeRO on processors: each matrix is of one rank.

Usage: test_owned_matrices.py BINARY [unittest options]"""

import json
import pathlib
import shutil
import sys
import unittest

from test_ranks import MODEL, SEQUENCES, Ranks
from training_runs import TrainingRuns, numbers_of

KINDS = ("muon", "shampoo")
SIZE = ("--model", "tiny", "--layers", 3, "--d-model", 64, "--heads", 2, "--d-ff", 128, "--vocab", 128, "--batch", 2, "--seq", 32)


class OwnedMatrices(Ranks):
    def test_they_train_as_one_rank_does(self):
        for kind in KINDS:
            optimizer = ("--optimizer", kind)
            whole = self.numbers(f"{kind}_whole", *optimizer, "--batch", SEQUENCES, steps=10)
            for ranks, zeros in ((2, (0, 1, 2, 3)), (4, (0, 1, 3))):
                data = None
                for zero in zeros:
                    with self.subTest(kind=kind, ranks=ranks, zero=zero):
                        numbers = self.numbers(f"{kind}_{ranks}_{zero}", *optimizer, "--batch", SEQUENCES // ranks, "--dp", ranks,
                                               "--zero", zero, ranks=ranks, steps=10)
                        self.expect_near(numbers, whole, 1e-5)
                        data = data or numbers
                        self.assertEqual(numbers, data, "ZeRO gives the bits of data parallel")

    def test_lion_is_divided_by_elements(self):
        whole = self.numbers("whole", "--optimizer", "lion", "--batch", 4, "--dp", 2, ranks=2, steps=6)
        self.assertEqual(self.numbers("zero", "--optimizer", "lion", "--batch", 4, "--zero", 1, ranks=2, steps=6), whole)

    def test_another_number_of_ranks_goes_on(self):
        for kind, zero, layout in (("muon", 1, "whole"), ("shampoo", 1, "parts"), ("muon", 3, "parts"), ("shampoo", 2, "whole")):
            arguments = ("--optimizer", kind, "--batch", 4, "--zero", zero, "--schedule", "constant", "--checkpoint-layout", layout)
            whole = self.numbers("whole", *arguments, ranks=2, steps=6)
            self.numbers("half", *arguments, ranks=2, steps=3)
            for ranks in (1, 2, 4):
                with self.subTest(kind=kind, zero=zero, layout=layout, ranks=ranks):
                    out = self.folder / f"on_{ranks}"
                    shutil.copytree(self.folder / "half", out, symlinks=True)
                    starter = ["launch", "-n", ranks, "--"] if ranks > 1 else []
                    self.ok(*starter, "train", "--out", out, "--resume", "--steps", 6, "--no-peak", "--threads", 1)
                    numbers = numbers_of(out / "log.jsonl")
                    self.expect_near(numbers, whole, 1e-5)
                    if ranks == 2:
                        self.assertEqual([line["loss"] for line in numbers], [line["loss"] for line in whole])
            for out in self.folder.iterdir():
                shutil.rmtree(out)

    def test_state_is_divided_as_planned(self):
        for kind in KINDS:
            kept = {}
            for ranks in (1, 2, 3):
                record = self.folder / f"{kind}{ranks}.rooflm"
                starter = ["launch", "-n", ranks, "--"] if ranks > 1 else []
                split = ("--zero", 1, "--optimizer", kind) if ranks > 1 else ("--optimizer", kind)
                self.ok(*starter, "profile", *SIZE, *split, "--device", "cpu", "--steps", 2, "--threads", 1, "-o", record)
                if ranks > 1 and kind == "muon":
                    self.ok("verify", record)
                tables = json.loads(self.ok("report", record, "--view", "memory", "--format", "json"))[0]["tables"]
                lasting = next(row for row in tables[0]["rows"] if row["phase"] == "persistent")
                plan, = json.loads(self.ok("plan", *SIZE, "--dtype", "fp32", *split, "--dp", ranks, "--device", "h100-sxm",
                                           "--format", "json", "--columns", "optimizer_bytes"))
                self.assertEqual(lasting["optimizer_state"], plan["optimizer_bytes"], (kind, ranks))
                kept[ranks] = lasting["optimizer_state"]
            for ranks in (2, 3):  # what the first rank has: the most of all
                self.assertLess(kept[ranks], 1.15 * kept[1] / ranks, (kind, kept))

    def test_what_cannot_be_is_said(self):
        for kind in KINDS:
            program = ("program", "--model", "tiny", "--device", "null", "--optimizer", kind)
            self.fails(5, *program, "--tp", 2, says=(f"--optimizer {kind}", "--tp"))
            self.fails(5, "plan", "--model", "gpt2", "--device", "h100-sxm", "--gpus", 2, "--fsdp", "--framework", "torchtitan",
                       "--optimizer", kind, says=(f"--optimizer {kind}", "--framework"))
        result = self.run_rooflm("launch", "-n", 2, "--", "train", "--data", self.data, "--out", self.out, *MODEL, "--steps", 1,
                                 "--optimizer", "muon", "--zero", 1, "--collectives", "peer-memory")
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertRegex(result.stderr, "--collectives peer-memory .* --optimizer muon .* leave out --zero")
        self.assertFalse(self.out.exists())


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
