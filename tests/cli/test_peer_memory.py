"""Updates that read the gradients of all ranks, on processors: numbers, lost ranks, profiles.

Usage: test_peer_memory.py BINARY [unittest options]. On GPUs: test_cuda_ranks.py BINARY PeerMemory"""

import os
import sys
import unittest

os.environ["RANKS_DEVICE"] = "cpu"

import test_ranks  # noqa: E402
from test_cuda_ranks import PeerMemory  # noqa: E402, F401: its tests run here
from training_runs import TrainingRuns  # noqa: E402


class Barriers(test_ranks.Ranks):
    def test_early_updates_are_in_their_phase(self):
        """On processors the thread of the step runs them between the ops of the backward pass."""
        record = self.folder / "early.rooflm"
        size = ["512" if word == "32" else word for word in test_ranks.Profiles.SIZE]  # updates longer than what verify allows
        self.ok("launch", "-n", 2, "--", "profile", *size, "--zero", "1", "--clip", "0", "--collectives", "peer-memory",
                "--overlap", "on", "--steps", 3, "-o", record, "--view", "overview")
        self.ok("verify", record)

    def test_they_are_rows_without_bandwidth(self):
        record = self.folder / "peer.rooflm"
        self.ok("launch", "-n", 2, "--", "profile", *test_ranks.Profiles.SIZE, "--zero", "1", "--clip", "0", "--collectives", "peer-memory",
                "--steps", 3, "-o", record, "--view", "overview")
        self.ok("verify", record)
        calls, _ = test_ranks.Profiles.cells(self, record)
        self.assertEqual({row["op"] for row in calls}, {"all_gather", "all_reduce", "barrier"}, "gradients are summed by the update")
        for row in calls:
            self.assertEqual(row["op"] == "barrier", row.get("busbw") is None)


if __name__ == "__main__":
    TrainingRuns.binary = sys.argv.pop(1)
    unittest.main(verbosity=2)
