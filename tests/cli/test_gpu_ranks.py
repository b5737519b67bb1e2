#!/usr/bin/env python3
"""scripts/gpu_ranks on ranks of this processor, and scripts/torch_ranks.py's command line: what they print is complete.

Usage: test_gpu_ranks.py BINARY [unittest options]"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
SMALL = "--layers 1 --d-model 32 --heads 2 --d-ff 64 --vocab 50 --seq 16"


class Ranks(unittest.TestCase):
    binary = ""

    def run_script(self, *words):
        return subprocess.run([sys.executable, SCRIPTS / "gpu_ranks", self.binary, "--device", "cpu", "--gpus", "2", "--ways", "default",
                               "--more", SMALL, *words], capture_output=True, text=True, timeout=300, check=False)

    def test_steps_stand_beside_their_reference_the_plan_and_what_was_exposed(self):
        result = self.run_script("--part", "steps", "--only", "^small dp|2.7B tp 2,", "--exposed", "--plan-device", "h200")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        lines = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in result.stdout.splitlines()]
        head = next(cells for cells in lines if cells[:1] == ["configuration"])
        for name in ("small dp", "2.7B tp 2, strong"):
            row = dict(zip(head, next(cells for cells in lines if cells[:1] == [name] and len(cells) == len(head))))
            self.assertGreater(float(row["ms"]), 0)
            self.assertGreater(float(row["alone ms"]), 0)
            gain, alone, ms = float(row["gain"].rstrip("!")), float(row["alone ms"]), float(row["ms"])
            rounded = gain * (0.005 / ms + 0.005 / alone) + 0.001  # two decimals of a time that may be short
            self.assertAlmostEqual(gain, alone / ms, delta=2 * rounded)
            self.assertRegex(row["exposed"], r"^\d+\.\d %$")
            self.assertGreater(float(row["plan ms"]), 0)
        self.assertIn("all ran", result.stdout)

    def test_a_row_that_fails_is_told_and_ends_with_1(self):
        result = self.run_script("--part", "steps", "--only", "^small dp", "--plan-device", "no such device")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("FAILED plan", result.stdout)

    def test_ways_for_which_nccl_is_too_old_are_left_out_and_said(self):
        """A rooflm, and an nvidia-smi with two GPUs, that only answer."""
        with tempfile.TemporaryDirectory() as folder:
            rooflm, smi = pathlib.Path(folder, "rooflm"), pathlib.Path(folder, "nvidia-smi")
            smi.write_text("#!/bin/sh\necho one GPU\necho another\n")
            rooflm.write_text("""#!/bin/sh
case "$*" in
  *few-blocks*|*copy-engine*) echo "rooflm: --collectives WAY: NCCL 2.28.3 is too old, 2.28.7 can do it" >&2; exit 5;;
  *) echo '[{"op": "all_reduce", "size": 1048576, "time_us": 10, "busbw": 1e9, "carrier": "NCCL 2.28.3", "wrong": 0}]';;
esac
""")
            for program in (rooflm, smi):
                program.chmod(0o755)
            result = subprocess.run([sys.executable, SCRIPTS / "gpu_ranks", rooflm, "--part", "comm"], capture_output=True, text=True, timeout=60,
                                    check=False, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        for way in ("few-blocks", "copy-engine"):
            self.assertIn(f"{way}: not measured: NCCL 2.28.3 is too old, 2.28.7 can do it", result.stdout)
        self.assertEqual([line.split()[0] for line in result.stdout.splitlines() if "all_reduce" in line], ["default"])

    def test_without_several_gpus_it_says_so(self):
        result = subprocess.run([sys.executable, SCRIPTS / "gpu_ranks", self.binary], capture_output=True, text=True, timeout=60, check=False,
                                env={"PATH": "/nonexistent"})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("SKIPPED: 0 GPU here", result.stdout)

    def test_the_peer_tells_its_options_without_pytorch(self):
        result = subprocess.run([sys.executable, SCRIPTS / "torch_ranks.py", "--help"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("{none,ddp,fsdp}", result.stdout)


if __name__ == "__main__":
    Ranks.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
