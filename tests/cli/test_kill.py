#!/usr/bin/env python3
"""Killing a training run at any moment never leaves a checkpoint that does not load, and loses no number.

Usage: test_kill.py BINARY [unittest options]; about a minute."""

import json
import pathlib
import random
import sys
import time
import unittest

from training_runs import TrainingRuns, numbers_of

STEPS = 60
SECONDS = 45  # of killing


class Kill(TrainingRuns):
    def check_checkpoints(self):
        """All that look complete load, weights and optimizer; returns the step of the newest."""
        for checkpoint in self.checkpoints():
            self.ok("eval", "--model", checkpoint, "--data", self.data, "--batch", 1, "--seq", 16, "--batches", 1)
        return json.loads((self.checkpoints()[-1] / "state.json").read_text())["step"] if self.checkpoints() else 0

    def test_kill_at_any_moment(self):
        options = ["--steps", STEPS, "--checkpoint-every", 1, "--eval-every", 4]
        self.train(*options)
        whole = numbers_of(self.out / "log.jsonl")
        weights = (self.out / "latest/model.safetensors").read_bytes()
        self.out = self.folder / "killed"
        chance = random.Random(1)
        step = kills = unfinished = 0
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and step < STEPS - 1:
            process = self.start(*options, "--resume")
            # Wait until it saves, then a little longer, so that blows fall everywhere in a step.
            for _ in range(400):
                if self.out.exists() and (any(self.out.glob("*.tmp")) or len(self.checkpoints()) > 0):
                    break
                time.sleep(0.01)
            time.sleep(chance.random() * 0.3)
            process.kill()
            process.wait(60)
            process.stderr.close()
            kills += 1
            unfinished += any(self.out.glob("*.tmp"))
            now = self.check_checkpoints()
            self.assertGreaterEqual(now, step)
            step = now
        print(f"{kills} kills, {unfinished} of them while a checkpoint was written, up to step {step}", file=sys.stderr)
        self.assertGreater(kills, 2)
        self.ok("train", "--out", self.out, "--resume", "--no-peak", "--data", self.data, "--steps", STEPS, "--model", "tiny",
                "--layers", "1", "--d-model", "32", "--heads", "2", "--d-ff", "64", "--threads", "1")
        self.assertEqual(numbers_of(self.out / "log.jsonl"), whole)
        self.assertEqual((self.out / "latest/model.safetensors").read_bytes(), weights)
        self.assertEqual(list(self.out.glob("*.tmp")), [])


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
