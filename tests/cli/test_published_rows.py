#!/usr/bin/env python3
"""scripts/validate_plan: runs that others published, and rows as others write them.

Usage: test_published_rows.py BINARY [unittest options]"""

import csv
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import types
import unittest

BINARY = ""


ROOT = pathlib.Path(__file__).resolve().parents[2]


def validate(*files):
    return subprocess.run([ROOT / "scripts" / "validate_plan", "--binary", BINARY, *files], capture_output=True, text=True,
                          timeout=300, check=False)


def modules():
    """The script's modules, without a cache beside them."""
    found = types.ModuleType("published_rows")
    names = ["row_columns", "row_hardware", "expert_rows"]
    for name in names:
        sys.modules[name] = types.ModuleType(name)
    try:
        for name in [*names, "published_rows"]:
            path = ROOT / "scripts" / f"{name}.py"
            module = sys.modules.get(name, found)
            exec(compile(path.read_text(), path, "exec"), module.__dict__)
            found.__dict__.update(module.__dict__)
    finally:
        for name in names:
            del sys.modules[name]
    return found


class PublishedRows(unittest.TestCase):
    # Of each set: docs/accuracy.md's median, and how many rows are planned.
    SETS = {"llm_foundry": (4.9, "216 of 216"), "megatron_2022": (2.7, "8 of 8"), "megatron_bridge": (6.6, "8 of 8"),
            "megatron_bridge_2026": (4.1, "38 of 61"), "dgx_cloud": (6.4, "76 of 76"), "nemo_2407": (10.9, "12 of 12"),
            "megatron_h100": (9.1, "9 of 9"), "torchtitan_2024": (4.4, "9 of 9"), "vtrain_multi": (4.4, "109 of 109"), "vtrain_single": (7.8, "144 of 144")}

    def test_published_runs_are_planned_as_well_as_documented(self):
        for name, (median, coverage) in self.SETS.items():
            with self.subTest(name):
                done = validate(ROOT / "tests" / "perfmodel" / "published" / f"{name}.csv")
                self.assertEqual(done.returncode, 0, done.stderr)
                said = re.search(r"step_s: median ([0-9.]+) %.* rank correlation ([0-9.]+), coverage (.*)", done.stdout)
                self.assertLess(float(said[1]), median + 1, "docs/accuracy.md says less")
                self.assertGreater(float(said[2]), 0.9)
                self.assertEqual(said[3], coverage)
                inside, rows = map(int, re.search(r"step_s within the printed interval: (\d+) of (\d+)", done.stdout).groups())
                self.assertGreater(inside, 0.75 * rows)

    def test_rows_of_any_form_say_what_is_wrong_with_them(self):
        base = {"Model": "Llama 3 8B", "GPU": "H100 80GB HBM3", "# GPUs": "8", "dtype": "bf16-mixed", "Sequence Length": "8k",
                "vocab_size": "128,256", "num_layers": "32", "hidden_size": "4096", "num_heads": "32", "num_query_groups": "8",
                "intermediate_size": "14336", "mlp": "SwiGLU", "TP": "1", "PP": "n/a", "VP": "-", "CP": "1", "MBS": "1",
                "GBS": "128", "sharding": "", "AC": "none", "framework": "Megatron-Bridge", "Tokens / sec / GPU": "", "MFU": "",
                "step_time_ms": "", "tokens/s": ""}
        planned = [{"Tokens / sec / GPU": "9,500"}, {"MFU": "45%"}, {"MFU": "0.45"}, {"step_time_ms": "13800"}, {"tokens/s": "76k"},
                   {"TP": "2", "Tokens / sec / GPU": "9000"}, {"MBS": "", "MFU": "45"}, {"AC": "selective (core attention)", "MFU": "45"},
                   {"sharding": "ZeRO-3", "framework": "DeepSpeed", "MFU": "40"}, {"sharding": "1", "MFU": "40"}]
        refused = {"TP": ("two", "TP 'two' is no number"), "dtype": ("int4", "'int4'"), "hidden_size": ("", "no column .hidden."),
                   "GPU": ("TPU v4", "no device of the catalog"), "# GPUs": ("", "n_gpus"), "AC": ("every 3rd block", "every 3rd block"),
                   "Model": ("Mixtral 8x7B", "mixture"), "num_layers": ("4x8", "4x8"), "sharding": ("ZeRO-Infinity", "infinity"),
                   "MBS": ("3", "not a multiple of --batch 3")}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.csv"
            with path.open("w", newline="", encoding="utf-8-sig") as file:
                writer = csv.DictWriter(file, base)
                writer.writeheader()
                writer.writerows([base | change for change in planned])
                writer.writerows([base | {"MFU": "45", name: value} for name, (value, _) in refused.items()])
                writer.writerow({})
            done = validate(path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("Traceback", done.stdout + done.stderr)
        self.assertIn(f"coverage {len(planned)} of {len(planned) + len(refused)}", done.stdout, done.stdout)
        refusals = [line for line in done.stdout.splitlines() if "| - | - |" in line]
        self.assertEqual(len(refusals), len(refused), done.stdout)
        for _, reason in refused.values():
            self.assertTrue(any(re.search(reason, line) for line in refusals), f"{reason}: {refusals}")
        self.assertIn("micro-batch not said", done.stdout)

    def test_rows_of_inference_are_planned_as_such(self):
        base = dict(model="Llama 3 8B", hardware="A100-SXM4-80GB", n_gpus=1, weights="bf16", kv_cache="bf16", phase="decode", batch=1,
                    input_tokens="", output_tokens=200, TP=1, PP=1, engine="gpt-fast (torch.compile)", vocab=128256, layers=32,
                    hidden=4096, heads=32, kv_heads=8, ffn_hidden=14336, mlp="swiglu", tokens_per_s=95.64)
        planned = [{}, dict(weights="int8", tokens_per_s=153.03), dict(weights="int4 g64", tokens_per_s=180.8),
                   dict(phase="serving", engine="TensorRT-LLM", hardware="H100 SXM", weights="fp8", batch="as many as fit",
                        input_tokens=1000, output_tokens=1000, tokens_per_s=15000)]
        refused = [(dict(PP=2), "pipelines of inference"), (dict(engine="mlc"), "has no profile"), (dict(weights="int3"), "int3"),
                   (dict(tokens_per_s=0), "tokens_per_s '0' is not above 0"), (dict(tokens_per_s=""), "tokens_per_s '' is not above 0"),
                   (dict(hardware="RTX 3090", hidden=8192, ffn_hidden=28672, layers=80, heads=64), "planned as too large")]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.csv"
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, base)
                writer.writeheader()
                writer.writerows([base | change for change in [*planned, *(change for change, _ in refused)]])
            done = validate(path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        alone = re.search(r"tokens/s of one text: median ([0-9.]+) %.*coverage 3 of 9", done.stdout)
        self.assertLess(float(alone[1]), 8, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^- tokens/s: median .*coverage 1 of 1$")
        for _, reason in refused:
            self.assertIn(reason, done.stdout)

    def test_a_reader_may_leave(self):
        rows = ROOT / "data" / "validation" / "rooflm_h200.csv"
        script = subprocess.Popen([ROOT / "scripts" / "validate_plan", "--binary", BINARY, rows], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        script.stdout.close()
        self.assertEqual((script.stderr.read(), script.wait()), ("", -signal.SIGPIPE))
        script.stderr.close()

    def test_files_without_rows_are_refused(self):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            for text in ("", "\n\n", "row_id,model\n"):
                file.write(text)
                file.flush()
                done = validate(file.name)
                self.assertEqual((done.returncode, done.stderr), (1, f"validate_plan: {file.name}: no rows: a line of column names and a "
                                                                     "line for each run are expected\n"))

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
        batch = dict(global_batch="4M tokens")
        refused = {"in tokens": "is in tokens", "4194304": "is it in tokens?", "metric": "metric 'speed' in unit 'furlongs'",
                   "Mixtral 8x7B": "mixture of experts", "Qwen3-30B-A3B": "mixture of experts", "Wide": "how many experts a token takes",
                   "TPU": "no device of the catalog is 'TPU v5p'", "fp4": "4 bits", "zb": "schedule ZB1P", "degrees": "no multiple of",
                   "vocabulary": "vocab", "precision": "'int8'"}
        changes = {"in tokens": batch, "4194304": dict(global_batch=4194304), "metric": dict(metric="speed", value=1, unit="furlongs"),
                   "Wide": dict(experts=8), "TPU": dict(hardware="TPU v5p"), "fp4": dict(precision="NVFP4"),
                   "zb": dict(schedule="ZB1P"), "degrees": dict(DP="", TP=3), "vocabulary": dict(vocab=""),
                   "precision": dict(precision="int8")}
        rows = [base | change for change in planned] + [base | dict(model=name) | changes.get(name, {}) for name in refused]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.csv"
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, ["row_id", "model", *base, "FSDP", "metric", "value", "unit"])
                writer.writeheader()
                writer.writerows({"row_id": f"r{i}"} | row for i, row in enumerate(rows))
            done = validate(path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"coverage {len(planned)} of {len(rows)}", done.stdout)
        for name, reason in refused.items():
            line, = (line for line in done.stdout.splitlines() if f" {name}, " in line and "| - |" in line)
            self.assertIn(reason, line)
        for note in ("planned with 32 layers", "HSDP", "one scale a tensor", "three of as many weights"):
            self.assertIn(note, done.stdout)

    def test_rows_of_others_are_read_as_they_mean(self):
        rows = modules()
        for text, wanted in (("640 A100 80GB", "a100-sxm"), ("NVIDIA A100 (40GB)", "a100-sxm-40gb"), ("a100_40gb", "a100-sxm-40gb"),
                             ("8x40GB A100", "a100-sxm-40gb"), ("A100-PCIe-40 GB", "a100-pcie-40gb"), ("A100-SXM4-40", "a100-sxm-40gb"),
                             ("A100 80GB (40 Gb/s per GPU)", "a100-sxm"), ("A100 PCIe", "a100-pcie-80gb"),
                             ("H100 80GB HBM3", "h100-sxm"), ("DGX-H100", "h100-sxm"), ("H100-PCIe 80GB", "h100-pcie"), ("8xH100", "h100-sxm"),
                             ("NVIDIA H200 141GB", "h200"), ("GB200 NVL72", "gb200"), ("DGX B200", "b200"), ("H800", "h800-sxm"),
                             ("H20", "h20"), ("MI300X", "mi300x"), ("MI325X", None), ("TPU v5e", None), ("Gaudi2", None)):
            self.assertEqual(rows.device_of(text), wanted, text)
        for said, pp, wanted in ((dict(FSDP="1", DP="8"), 1, 0), (dict(FSDP="8"), 1, 3), (dict(FSDP="8"), 2, 1), (dict(FSDP="1", CP="8"), 1, 3),
                                 (dict(FSDP="1", DP="8", sharding="FSDP"), 1, 3), (dict(FSDP="4", DP="2"), 1, 3), (dict(FSDP="", DP="8"), 1, 0)):
            self.assertEqual(rows.zero_of(said, pp), wanted, said)
        for text, wanted in (("selective", "selective"), ("full", "full"), ("Full (uniform)", "full"), ("selective(op)", "every-other"),
                             ("SAC", "every-other"), ("", "none"), ("No", "none"), ("n/a", "none"), ("core_attn", "selective")):
            self.assertEqual(rows.recompute_of(dict(recompute=text)), wanted, text)
        for metric, unit, name in (("throughput", "tokens/s/GPU", "tokens_per_s_per_gpu"), ("throughput", "tokens/s", "tokens_per_s"),
                                   ("step time", "s", "step_time_s_derived"), ("step_time", "ms", "step_time_ms"),
                                   ("peak memory", "GiB", "peak_memory_GiB"), ("MFU", "%", "mfu_pct"),
                                   ("throughput", "TFLOP/s/GPU", "metric_tflops_per_gpu")):
            self.assertEqual(rows.named(dict(metric=metric, value="3", unit=unit)).get(name), "3", metric)
        self.assertEqual(rows.named({"step_time_s_median": "3"})["step_time_s_derived"], "3")
        self.assertEqual(rows.recompute_of(dict(recompute="selective", framework="torchtitan")), "every-other")
        a100 = dict(hardware="A100", TP="8", recompute="full")
        for said, wanted in ((dict(framework="Megatron-LM"), "megatron-2022"), (dict(framework="Megatron-DeepSpeed"), "megatron-2021"),
                             (dict(framework="Megatron-LM", recompute="selective"), "megatron-2022-sp"),
                             (dict(framework="Megatron-LM", sequence_parallel="yes"), "megatron-2022-sp"),
                             (dict(framework="Megatron-LM", source="arXiv 2104.04473"), "megatron-2021"),
                             (dict(framework="Megatron-LM", attention="flash"), "megatron"), (dict(framework="Megatron-Core"), "megatron"),
                             (dict(framework="Megatron-LM", hardware="H100"), "megatron"), (dict(framework="NeMo 24.09"), "nemo-2024"),
                             (dict(framework="NeMo"), "megatron-bridge"), (dict(source="VIA-Research/vTrain"), "megatron-2021"),
                             (dict(source="arXiv:2205.05198 Table 5"), "megatron-2022"),
                             (dict(source="arXiv:2205.05198", recompute="selective + SP"), "megatron-2022-sp"),
                             (dict(source="a table", compile="yes"), "torch-compile")):
            self.assertEqual(rows.framework_of(a100 | said), wanted, said)
        for said, wanted in (("yes", True), ("no", False), ("", False)):
            self.assertEqual(rows.overlaps_tensor_exchange(a100 | dict(framework="Megatron-LM", async_tp=said)), wanted, said)
        self.assertTrue(rows.overlaps_tensor_exchange(dict(hardware="H100", framework="NeMo")))
        for text, wanted in (("fp16 mixed", "fp16"), ("mixed fp16", "fp16"), ("mixed", "bf16"), ("mixed bf16", "bf16"),
                             ("bfloat16", "bf16"), ("fp8 mixed with bf16", "fp8")):
            self.assertEqual(rows.dtype_of(dict(precision=text), "h100-sxm"), wanted, text)
        self.assertEqual(rows.dtype_of(dict(precision="mixed"), "v100-sxm"), "fp16")
        for text, wanted in (("50 GB/s per GPU", "50GB"), ("12.5GB/s RDMA per GPU", "12.5GB"), ("400 Gb/s per GPU", "50GB"),
                             ("400Gbps IB per gpu", "50GB"), ("200 Gbit/s per GPU", "25GB"), ("200 gb/s per gpu", "25GB"),
                             ("NVLink 900 GB/s per GPU", None), ("NVLink 4 (900 GB/s per GPU)", None), ("900 GB/s NVLink per GPU", None),
                             ("8/node, 4xHDR200", "12.5GB"), ("8/node, 8xNDR", "50GB"),
                             ("NVLink 900 GB/s per GPU, 400 Gb/s per GPU", "50GB"), ("NVLink (400 Gb/s RDMA per GPU)", "50GB")):
            self.assertEqual(rows.cluster_of(dict(hardware=f"H100 {text}")).get("--network"), wanted, text)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
