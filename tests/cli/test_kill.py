#!/usr/bin/env python3
"""Killing a training run at any moment never leaves a checkpoint that does not load, and loses no number.

Usage: test_kill.py BINARY [unittest options]; half a minute."""

import json
import pathlib
import random
import sys
import time
import unittest

from training_runs import TrainingRuns, numbers_of

STEPS = 30
SECONDS = 25  # of killing


class Kill(TrainingRuns):
    def check_checkpoints(self):
        """All that look complete load, weights and optimizer; returns the step of the newest."""
        for checkpoint in self.checkpoints():
            self.ok("eval", "--model", checkpoint, "--data", self.data, "--batch", 1, "--seq", 16, "--batches", 1)
        return json.loads((self.checkpoints()[-1] / "state.json").read_text())["step"] if self.checkpoints() else 0

    def saved(self):
        """What a run has written or is writing."""
        return {path.name for path in self.out.glob("*")} if self.out.exists() else set()

    def test_kill_at_any_moment(self):
        options = ["--steps", STEPS, "--checkpoint-every", 1, "--eval-every", 4]
        start = time.monotonic()
        self.train(*options)
        seconds_per_step = (time.monotonic() - start) / STEPS
        whole = numbers_of(self.out / "log.jsonl")
        weights = (self.out / "latest/model.safetensors").read_bytes()
        self.out = self.folder / "killed"
        chance = random.Random(1)
        step = kills = unfinished = 0
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and step < STEPS - 1:
            before = self.saved()
            process = self.start(*options, "--resume")
            # Most blows fall within a step or so of a first save; some while the run still starts.
            if chance.random() < 0.8:
                while process.poll() is None and self.saved() == before:
                    time.sleep(seconds_per_step / 20)
            time.sleep(chance.random() * 1.5 * seconds_per_step)
            process.kill()
            process.wait(60)
            process.stderr.close()
            kills += 1
            unfinished += any(self.out.glob("*.tmp"))
            now = self.check_checkpoints()
            self.assertGreaterEqual(now, step)
            step = now
        print(f"{kills} kills, {unfinished} of them while a checkpoint was written, up to step {step}", file=sys.stderr)
        self.assertGreater(kills, 5)
        self.ok("train", "--out", self.out, "--resume", "--no-peak", "--data", self.data, "--steps", STEPS, "--model", "tiny",
                "--layers", "1", "--d-model", "32", "--heads", "2", "--d-ff", "64", "--threads", "1")
        self.assertEqual(numbers_of(self.out / "log.jsonl"), whole)
        self.assertEqual((self.out / "latest/model.safetensors").read_bytes(), weights)
        self.assertEqual(list(self.out.glob("*.tmp")), [])


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
