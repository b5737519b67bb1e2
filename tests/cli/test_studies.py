#!/usr/bin/env python3
"""The sizes of studies: --large is that of the published reports, and every row of it can be.

Usage: test_studies.py BINARY [unittest options]"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

BINARY = ""
STUDIES = pathlib.Path(__file__).resolve().parents[2] / "studies"
H_SIZES = ["small", "medium", "large", "xl", "2.7B"]
R_SIZES = ["tiny", *H_SIZES]
S_LENGTHS = list(range(64, 1537, 64))
S_HEADS = [4, 8, 12, 16, 32]
H_LENGTHS = [128, 256, 512, 1024]
# By study: what the reports' sweeps have, each value of which must be there, and no other.
LARGE = {
    "allocators": {"model": ["gpt2"]},
    "attention_parts": {"model": ["medium", "large"], "B": [4], "T": [128, 256]},
    "attention_sweep": {"B": [8], "D": [16, 32, 64, 128], "T": [256, 1024, 4096, 8192, 16384], "dtype": ["bf16"]},
    "blocks": {"model": ["gpt2"], "B": [4, 16], "T": S_LENGTHS},
    "context": {"model": H_SIZES, "B": [4], "T": H_LENGTHS, "dtype": ["fp32", "bf16"]},
    "decode": {},
    "end_to_end": {"model": R_SIZES, "B": [4], "T": [128], "dtype": ["fp32", "bf16"], "engine": ["eager", "fused"]},
    "formats": {},
    "gap": {"model": ["gpt2", "large"], "B": [4]},
    "gemm": {"n": [1024, 2560, 4096], "strategy": ["big", "looped", "batched"]},
    "growth": {"model": ["gpt2"], "B": [4, 16], "T": S_LENGTHS},
    "head_size": {"model": ["gpt2"], "B": [4, 16], "heads": S_HEADS, "T": [64, 1536]},
    "heads": {"model": ["gpt2"], "B": [4, 16], "heads": S_HEADS, "T": [64, 1536], "head_dim": [192, 96, 64, 48, 24]},
    "input": {},
    "limits": {"device": ["null:h100-sxm"]},
    "memory": {"model": ["large"], "B": [4], "T": [128]},
    "ops": {"model": ["medium", "large"], "B": [4], "T": [128, 256]},
    "optimizers": {"optimizer": ["adamw", "lion", "muon"]},
    "overhead": {"model": ["medium"], "B": [4], "T": [128], "engine": ["eager"]},
    "precision": {"model": R_SIZES, "B": [4], "T": [128], "dtype": ["fp32", "bf16"]},
    "quantization": {},
    "roofline": {"model": ["gpt2"], "B": [4, 16], "T": [64, 1536]},
    "serving": {},
    "warmup": {"model": H_SIZES, "B": [4], "T": [256], "warmup": [0, 2, 5]},
}


def values_of(rows):
    """By field: all values that the rows have."""
    values = {}
    for row in rows:
        found = {key: str(row[key]) for key in row if key not in ("number", "run", "params", "tokens", "model_flop")}
        found |= dict(re.findall(r"(\w+)=(\S+)", row["run"]))
        found["model"] = row["run"].split()[0]
        for field, pattern in {"dtype": r"\b(fp32|bf16|fp16|fp8)\b", "engine": r"\b(eager|fused)\b",
                               "strategy": r"\b(big|looped|batched) on", "n": r"x \[(\d+),"}.items():
            if match := re.search(pattern, row["run"]):
                found[field] = match[1]
        for field, value in found.items():
            values.setdefault(field, set()).add(value)
    return values


class Studies(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="rooflm-studies-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("ROOFLM_")}
        self.environment = dict(kept, HOME=str(self.folder), XDG_CACHE_HOME=str(self.folder / "cache"))

    def ok(self, *arguments):
        result = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False,
                                cwd=self.folder, env=self.environment)
        self.assertEqual(result.returncode, 0, f"{arguments}: {result.stderr}")
        return result.stdout

    def rows(self, study, *options):
        device = [] if study == "limits" else ["--device", "cpu"]
        return json.loads(self.ok("study", study, *device, "--dry-run", "--format", "json", *options))

    def test_large_is_the_size_of_the_reports(self):
        names = [row["name"] for row in json.loads(self.ok("study", "list", "--format", "json"))]
        self.assertEqual(sorted(names), sorted(LARGE))
        (self.folder / "text.txt").write_text("One text for all. " * 4000)
        self.ok("data", "prepare", "text.txt", "-o", "data", "--vocab", 300)
        for study, wanted in LARGE.items():
            with self.subTest(study=study):
                data = ["--data", "data"] if study == "input" else []
                rows = self.rows(study, "--large", *data)
                self.assertTrue(rows)
                found = values_of(rows)
                for field, values in wanted.items():
                    self.assertEqual(found[field], set(map(str, values)), field)

    def test_steps_are_those_of_the_reports(self):
        """5 warm-up steps, 10 measured ones, a vocabulary of 10,000: R says so of all its tables."""
        for study in ("end_to_end", "precision", "overhead", "context"):
            with self.subTest(study=study):
                table = tomllib.loads((STUDIES / f"{study}.toml").read_text())
                large = table["options"] | table["large"]
                self.assertEqual((large["warmup"], large["steps"], large["max-seconds"], large.get("vocab", 10000)), (5, 10, "", 10000))

    def test_all_of_a_sweep_is_listed(self):
        rows = self.rows("blocks", "--large")
        self.assertEqual(len(rows), 2 * len(S_LENGTHS))
        self.assertEqual(len({row["run"] for row in rows}), len(rows))
        self.assertEqual(len(self.rows("attention_sweep", "--large")), 4 * 5 * 2)
        self.assertEqual(len(self.rows("gemm", "--large")), 3 * 4 * 3)
        self.assertEqual([row["heads"] for row in self.rows("heads", "--heads", "4,8", "--batch", 1)], ["4", "8"])
        self.assertEqual(len(self.rows("formats")), 3)

    def test_heads_share_a_width_or_keep_their_size(self):
        def params(study):
            return [row["params"] for row in self.rows(study, "--large", "--batch", 4, "--seq", 64)]
        self.assertEqual(len(set(params("heads"))), 1)
        # Of each layer 4 C D more a head, and the biases of its q, k and v.
        sizes = params("head_size")
        self.assertEqual([(size - sizes[0]) / (heads - 4) for size, heads in zip(sizes[1:], S_HEADS[1:])],
                         [12 * (4 * 768 * 64 + 3 * 64)] * 4)

    def test_positions_are_raised_where_a_report_did(self):
        result = subprocess.run([BINARY, "study", "blocks", "--seq", "1088", "--model", "gpt2", "--device", "cpu", "--dry-run"],
                                capture_output=True, text=True, check=False, env=self.environment)
        self.assertEqual(result.returncode, 2)
        self.assertIn("--seq 1088 is beyond the 1024 positions of gpt2 (--positions N gives it more)", result.stderr)
        one, more = (self.rows("blocks", "--model", "gpt2", "--batch", 1, "--seq", 64, *words)[0]["params"]
                     for words in ([], ["--positions", 1536]))
        self.assertEqual(more - one, 512 * 768)

    def test_what_large_says_of_steps_stands_alone(self):
        """end_to_end limits steps for a small machine; --large says how many there are."""
        self.rows("end_to_end", "--large", "--max-steps", 3)
        self.rows("end_to_end", "--large", "--steps", 3)
        mine = self.folder / "mine.toml"
        mine.write_text('title = "t"\nquestion = "q"\nviews = ["sweep"]\n[options]\nmodel = "tiny"\nseq = 32\nmax-steps = 6\nmin-steps = 3\n'
                        '[large]\nseq = ""\nsteps = 10\n')
        self.assertIn("T=64", self.rows(mine, "--large")[0]["run"], "an empty value is the option's own default")

    def bench(self, *options):
        result = subprocess.run([BINARY, "bench", "--model", "tiny", "--layers", "2", "--d-model", "64", "--d-ff", "128", "--heads", "2",
                                 "--vocab", "256", "--batch", "2", "--seq", "64", "--device", "cpu", "--no-peak", "--warmup", "1", "--steps", "3",
                                 "--format", "json", *map(str, options)],
                                capture_output=True, text=True, timeout=300, check=False, cwd=self.folder, env=self.environment)
        return result.returncode, json.loads(result.stdout)[0]

    def test_a_step_that_does_not_fit_keeps_its_forward_pass(self):
        """R: xl has a forward time, and no backward one."""
        step, forward = (self.bench("--phase", phase)[1]["needed_bytes"] for phase in ("step", "forward"))
        self.assertLess(forward, step)
        code, row = self.bench("--memory-limit", f"{(step + forward) // 2}B", "-o", "row.rooflm")
        self.assertEqual((code, row["status"]), (4, "oom"))
        self.assertGreater(row["forward_ms_mean"], 0)
        self.assertEqual((row["backward_ms_mean"], row["optimizer_ms_mean"], row["step_ms_mean"]), (None, None, None))
        self.ok("verify", "row.rooflm")
        _, row = self.bench("--memory-limit", f"{forward // 2}B")
        self.assertIsNone(row["forward_ms_mean"], "nor does the forward pass")

    def test_advertised_rates_stand_beside_sustained_ones(self):
        """The lecture: A100 312 TFLOP/s of bf16, 624 with sparsity, INT8 624 and 1248; an H100 sustains 82 %."""
        rows = json.loads(self.ok("peaks", "--device", "null:a100-sxm,null:h100-sxm", "--format", "json"))
        found = {(row["device"], row["dtype"]): row for row in rows}
        self.assertEqual([found["a100-sxm", dtype][key] / 1e12 for dtype in ("tf32", "bf16", "int8") for key in ("dense", "sparse")],
                         [156, 312, 312, 624, 624, 1248])
        self.assertAlmostEqual(found["h100-sxm", "bf16"]["share"], 0.82, delta=0.02)
        self.assertEqual([found[device, "bf16"]["by"] for device in ("a100-sxm", "h100-sxm")], ["family", "measured"])
        self.assertIsNone(found["a100-sxm", "fp64"]["sparse"])
        self.assertAlmostEqual(found["h100-sxm", "bf16"]["critical_rows"], 989.4e12 * 2 / (2 * 3.35e12), delta=1)
        self.assertAlmostEqual(found["h100-sxm", "fp8"]["critical_rows"], found["h100-sxm", "bf16"]["critical_rows"], delta=1)

    def test_every_device_of_the_catalog_has_both_rates(self):
        """The lecture: an MI250X sustains 65 %."""
        rows = json.loads(self.ok("peaks", "--device", "catalog", "--dtype", "bf16,fp16", "--format", "json"))
        self.assertEqual({row["dtype"] for row in rows}, {"bf16", "fp16"})
        self.assertEqual([row["device"] for row in rows if not row["sustained"]], [])
        found = {row["device"]: row for row in rows}
        self.assertAlmostEqual(found["mi250x"]["share"], 0.65, delta=0.005)
        self.assertEqual([found[device]["by"] for device in ("h100-sxm", "mi250x", "rtx-3090")], ["measured", "family", "assumed"])


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
