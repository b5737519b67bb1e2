#!/usr/bin/env python3
"""scripts/validate_plan: runs that others published, and rows as others write them.

Usage: test_published_rows.py BINARY [unittest options]"""

import csv
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest

BINARY = ""


class PublishedRows(unittest.TestCase):
    def test_published_runs_are_all_planned_and_as_well_as_documented(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        done = subprocess.run([root / "scripts" / "validate_plan", "--binary", BINARY,
                               root / "tests" / "perfmodel" / "published" / "llm_foundry.csv"],
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = re.search(r"step_s: median ([0-9.]+) %.* rank correlation ([0-9.]+), coverage (.*)", done.stdout)
        self.assertLess(float(said[1]), 10, "docs/accuracy.md says 8.5")
        self.assertGreater(float(said[2]), 0.99)
        self.assertEqual(said[3], "216 of 216")

    def test_rows_that_others_may_write_are_planned_or_say_why_not(self):
        base = dict(n_gpus=8, precision="bf16", seq_len=4096, vocab=32000, layers=32, hidden=4096, heads=32, kv_heads=8,
                    ffn_hidden=14336, mlp="swiglu", DP=8, TP=1, PP=1, CP=1, VPP="", micro_batch=1, global_batch=32,
                    sharding="FSDP", recompute="full", compile="no", framework="", schedule="", experts="", hardware="H100 SXM",
                    tokens_per_s_per_gpu=9000)
        planned = [dict(model="Mistral 7B", hardware="A100-SXM4-40GB", framework="DeepSpeed", sharding="ZeRO-3"),
                   dict(model="Qwen2.5 7B", layers=28, hidden=3584, heads=28, kv_heads=4, ffn_hidden=18944, DP=1, PP=8, global_batch=16),
                   dict(model="Falcon", mlp="gelu", hardware="L40S", precision="BF16-mixed"),
                   dict(model="Llama 3 8B", hardware="GB200 NVL72", precision="MXFP8", framework="NeMo", sharding="ZeRO-1"),
                   dict(model="Llama 3 8B", hardware="H20 96GB", sharding="HSDP", DP=2, FSDP=4, recompute="uniform"),
                   dict(model="Llama 3 8B", hardware="B200 (8/node, 800 Gb/s RDMA per GPU)", seq_len=1048576, DP=1, CP=8, global_batch=1),
                   dict(model="GPT", mlp="gelu", kv_heads="", ffn_hidden="", hardware="V100-SXM2-32GB", precision="mixed", DP="", VPP=5)]
        refused = {"Mixtral 8x7B": "mixture of experts", "Qwen3-30B-A3B": "mixture of experts", "Wide": "mixture of experts",
                   "TPU": "no device of the catalog is 'TPU v5p'", "fp4": "4 bits", "zb": "schedule ZB1P", "degrees": "no multiple of",
                   "vocabulary": "vocab", "precision": "'int8'"}
        changes = {"Wide": dict(experts=8), "TPU": dict(hardware="TPU v5p"), "fp4": dict(precision="NVFP4"),
                   "zb": dict(schedule="ZB1P"), "degrees": dict(DP="", TP=3), "vocabulary": dict(vocab=""),
                   "precision": dict(precision="int8")}
        rows = [base | change for change in planned] + [base | dict(model=name) | changes.get(name, {}) for name in refused]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.csv"
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, ["row_id", "model", *base, "FSDP"])
                writer.writeheader()
                writer.writerows({"row_id": f"r{i}"} | row for i, row in enumerate(rows))
            script = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "validate_plan"
            done = subprocess.run([script, "--binary", BINARY, path], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"coverage {len(planned)} of {len(rows)}", done.stdout)
        for name, reason in refused.items():
            line, = (line for line in done.stdout.splitlines() if f" {name}, " in line and "| - |" in line)
            self.assertIn(reason, line)
        for note in ("planned with 32 layers", "HSDP", "one scale a tensor", "three of as many weights"):
            self.assertIn(note, done.stdout)

    def test_rows_of_others_are_read_as_they_mean(self):
        path = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "published_rows.py"
        rows = types.ModuleType("published_rows")
        exec(compile(path.read_text(), path, "exec"), rows.__dict__)  # an import would leave a cache beside it
        for text, wanted in (("640 A100 80GB", "a100-sxm"), ("NVIDIA A100 (40GB)", "a100-sxm-40gb"), ("a100_40gb", "a100-sxm-40gb"),
                             ("8x40GB A100", "a100-sxm-40gb"), ("A100-PCIe-40 GB", "a100-pcie-40gb"), ("A100-SXM4-40", "a100-sxm-40gb"),
                             ("A100 80GB (40 Gb/s per GPU)", "a100-sxm"), ("A100 PCIe", "a100-pcie-80gb")):
            self.assertEqual(rows.device_of(text), wanted, text)
        for said, pp, wanted in ((dict(FSDP="1", DP="8"), 1, 0), (dict(FSDP="8"), 1, 3), (dict(FSDP="8"), 2, 1), (dict(FSDP="1", CP="8"), 1, 3),
                                 (dict(FSDP="1", DP="8", sharding="FSDP"), 1, 3), (dict(FSDP="4", DP="2"), 1, 3), (dict(FSDP="", DP="8"), 1, 0)):
            self.assertEqual(rows.zero_of(said, pp), wanted, said)
        for text, wanted in (("fp16 mixed", "fp16"), ("mixed fp16", "fp16"), ("mixed", "bf16"), ("mixed bf16", "bf16"),
                             ("bfloat16", "bf16"), ("fp8 mixed with bf16", "fp8")):
            self.assertEqual(rows.dtype_of(dict(precision=text), "h100-sxm"), wanted, text)
        self.assertEqual(rows.dtype_of(dict(precision="mixed"), "v100-sxm"), "fp16")
        for text, wanted in (("50 GB/s per GPU", "50GB"), ("12.5GB/s RDMA per GPU", "12.5GB"), ("400 Gb/s per GPU", "50GB"),
                             ("400Gbps IB per gpu", "50GB"), ("200 Gbit/s per GPU", "25GB"), ("200 gb/s per gpu", "25GB"),
                             ("NVLink 900 GB/s per GPU", None), ("NVLink 4 (900 GB/s per GPU)", None), ("900 GB/s NVLink per GPU", None),
                             ("NVLink 900 GB/s per GPU, 400 Gb/s per GPU", "50GB"), ("NVLink (400 Gb/s RDMA per GPU)", "50GB")):
            self.assertEqual(rows.cluster_of(dict(hardware=f"H100 {text}")).get("--network"), wanted, text)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
