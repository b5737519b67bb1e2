#!/usr/bin/env python3
"""Models of other families: what is described, counted and planned, what runs, and what is refused.

Usage: test_models.py BINARY [unittest options]"""

import contextlib
import json
import math
import os
import pathlib
import random
import sqlite3
import struct
import subprocess
import sys
import tempfile
import unittest

from training_runs import TrainingRuns, numbers_of

BINARY = ""


def run(*arguments):
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def plan(*arguments):
    done = run("plan", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write_weights(folder, shapes, biases=1.0):
    """Norms of ones, and small numbers, drawn by name; `biases`: what those of biases are multiplied with."""
    header, data = {}, b""
    for tensor, shape in shapes.items():
        chance = random.Random(tensor)
        size = math.prod(shape)
        values = [1.0] * size if "norm" in tensor else [chance.gauss(0, 0.2) for _ in range(size)]
        if tensor.endswith("bias"):
            values = [biases * value for value in values]
        header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * size]}
        data += struct.pack(f"<{size}f", *values)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


class Models(unittest.TestCase):
    def refused(self, text, *arguments):
        done = run("plan", *arguments)
        self.assertEqual(done.returncode, 5, done.stdout + done.stderr)
        self.assertIn(text, done.stderr)

    def directory(self, **keys):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        with open(os.path.join(folder.name, "config.json"), "w") as file:
            json.dump({"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4,
                       "vocab_size": 1000, "max_position_embeddings": 8192, **keys}, file)
        return folder.name

    def test_models_of_families_are_described(self):
        base, = plan("--model", self.directory(model_type="llama"), "--device", "h100-sxm", "--seq", 4096)
        itself, = plan("--model", os.path.join(self.directory(model_type="llama"), "config.json"), "--device", "h100-sxm", "--seq", 4096)
        self.assertEqual((itself["params"], itself["step_s"]), (base["params"], base["step_s"]))
        scaled, = plan("--model", self.directory(model_type="llama", rope_scaling={"rope_type": "llama3"}),
                       "--device", "h100-sxm", "--seq", 4096)
        self.assertEqual((scaled["params"], scaled["step_s"]), (base["params"], base["step_s"]))
        done = run("program", "--model", "gpt2", "--totals", "--format", "json", "--device", "cpu")
        totals = json.loads(done.stdout)["totals"]
        self.assertEqual((totals["params"], totals["active_params"], totals["padding"]), (124439808, 124439808, 36096))
        biased, = plan("--model", self.directory(model_type="llama", attention_bias=True, mlp_bias=True),
                       "--device", "h100-sxm", "--seq", 4096)
        self.assertEqual(biased["params"] - base["params"], 4 * (3 * 256 + 256 + 2 * 512 + 256))
        # A window is attention's, not the positions'.
        window = self.directory(model_type="mistral", sliding_window=1024)
        windowed, = plan("--model", window, "--device", "h100-sxm", "--seq", 4096)
        self.assertEqual(windowed["params"], base["params"])
        self.assertLess(windowed["step_s"], base["step_s"])
        late = self.directory(model_type="qwen2", sliding_window=1024, use_sliding_window=True, max_window_layers=2)
        half, = plan("--model", late, "--device", "h100-sxm", "--seq", 4096)
        self.assertLess(windowed["step_s"], half["step_s"])
        short, = plan("--model", window, "--device", "h100-sxm", "--seq", 1024)
        same, = plan("--model", self.directory(model_type="llama"), "--device", "h100-sxm", "--seq", 1024)
        self.assertEqual(short["step_s"], same["step_s"])

    def test_experts_are_planned_on_data_parallel_ranks(self):
        experts = self.directory(model_type="mixtral", num_local_experts=8, num_experts_per_tok=2)
        dense, = plan("--model", self.directory(model_type="llama"), "--device", "h100-sxm", "--seq", 2048, "--batch", 8)
        row, = plan("--model", experts, "--device", "h100-sxm", "--seq", 2048, "--batch", 8)
        of_one = 3 * 256 * 512
        self.assertEqual(row["params"] - dense["params"], 4 * (7 * of_one + 8 * 256))
        self.assertEqual(row["active_params"] - dense["params"], 4 * (of_one + 8 * 256))
        self.assertGreater(row["weight_bytes"], 3 * dense["weight_bytes"])
        sharded, = plan("--model", experts, "--device", "h100-sxm", "--seq", 2048, "--gpus", 8, "--zero", 3)
        self.assertEqual(sharded["status"], "planned")
        shared, = plan("--model", experts, "--device", "h100-sxm", "--seq", 2048, "--gpus", 2, "--tp", 2, "--expert-tp", 2)
        self.assertLess(shared["weight_bytes"], 0.6 * row["weight_bytes"])
        self.refused("experts", "--model", experts, "--device", "h100-sxm", "--gpus", 2, "--tp", 2, "--framework", "megatron-2021")
        self.assertTrue(all(row["tp"] == 1 for row in plan("--model", experts, "--device", "h100-sxm", "--gpus", 4,
                                                           "--seq", 2048, "--search", "--top", 3)))

    def test_experts_run_on_processors(self):
        model = self.directory(model_type="mixtral", num_local_experts=8, num_experts_per_tok=2)
        for engine in ("eager", "fused"):
            done = run("bench", "--device", "cpu", "--model", model, "--seq", 16, "--batch", 1, "--steps", 1, "--warmup", 0,
                       "--layers", 1, "--engine", engine)
            self.assertEqual(done.returncode, 0, done.stderr)
        for keys in (dict(num_local_experts=8, num_experts_per_tok=9), dict(num_local_experts=0, num_experts_per_tok=0)):
            done = run("bench", "--device", "cpu", "--model", self.directory(model_type="mixtral", **keys), "--seq", 16)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_what_no_kernel_computes_is_described_and_not_run(self):
        for keys, seq, says in ((dict(model_type="llama", rope_scaling={"type": "longrope"}), 32, "longrope"),):
            model = self.directory(**keys)
            done = run("program", "--model", model, "--seq", seq, "--device", "cpu", "--totals", "--format", "json")
            self.assertEqual(done.returncode, 0, done.stderr)
            for command in (["bench", "--device", "cpu"], ["profile", "--device", "cpu"]):
                done = run(*command, "--model", model, "--seq", seq)
                self.assertEqual(done.returncode, 5, done.stderr)
                self.assertIn(says, done.stderr)
            done = run("bench", "--device", "null", "--model", model, "--seq", seq)
            self.assertEqual(done.returncode, 0, done.stderr)
        # Norms of queries and keys, and windows, are computed.
        for keys in (dict(model_type="qwen3"), dict(model_type="mistral", sliding_window=16)):
            done = run("bench", "--device", "cpu", "--model", self.directory(**keys), "--seq", 32, "--batch", 1, "--steps", 1,
                       "--warmup", 0, "--layers", 1)
            self.assertEqual(done.returncode, 0, done.stderr)
        for model_type, says in (("qwen3_next", "layers of linear attention"), ("mamba2", "state-space layers")):
            for command in (["plan", "--device", "h100-sxm"], ["program"], ["bench", "--device", "cpu"]):
                done = run(*command, "--model", self.directory(model_type=model_type))
                self.assertEqual(done.returncode, 5, done.stderr)
                self.assertIn(says, done.stderr)


class Weights(TrainingRuns):
    """Directories of a relative of llama with weights."""

    SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 64}

    def model(self, name, biases=0.0, **keys):
        """Tensors of small numbers, drawn by name; `biases`: how large those of queries, keys and values are."""
        shapes = {"model.embed_tokens.weight": (300, 32), "model.norm.weight": (32,), "lm_head.weight": (300, 32)}
        for layer in range(2):
            h = f"model.layers.{layer}."
            shapes |= {h + "input_layernorm.weight": (32,), h + "post_attention_layernorm.weight": (32,),
                       h + "self_attn.o_proj.weight": (32, 32), h + "mlp.gate_proj.weight": (48, 32),
                       h + "mlp.up_proj.weight": (48, 32), h + "mlp.down_proj.weight": (32, 48)}
            for part, width in (("q", 32), ("k", 16), ("v", 16)):
                shapes[h + f"self_attn.{part}_proj.weight"] = (width, 32)
                if keys["model_type"] == "qwen2":
                    shapes[h + f"self_attn.{part}_proj.bias"] = (width,)
        folder = self.folder / name
        folder.mkdir()
        write_weights(folder, shapes, biases)
        (folder / "config.json").write_text(json.dumps(self.SIZES | keys))
        (folder / "tokenizer.json").write_text((self.data / "tokenizer.json").read_text())
        return folder

    def loss(self, model, *options):
        shard = next(self.data.glob("val*.bin"))
        rows = json.loads(self.ok("eval", "--model", model, "--data", shard, "--seq", 16, "--batch", 2, "--batches", 4,
                                  "--device", "cpu", "--format", "json", *options))
        return rows[0]["loss"]

    def test_biases_are_read_and_added(self):
        plain = self.loss(self.model("llama", model_type="llama"))
        self.assertEqual(self.loss(self.model("zero", model_type="qwen2")), plain)
        biased = self.model("biased", biases=5, model_type="qwen2")
        losses = [self.loss(biased, "--engine", engine) for engine in ("eager", "fused")]
        self.assertGreater(abs(losses[0] - plain), 1e-3)
        self.assertAlmostEqual(losses[0], losses[1], places=5)
        self.ok("generate", "--model", biased, "--prompt", "the cat", "--tokens", 4, "--device", "cpu")

    def test_a_window_that_sees_all_is_no_window(self):
        plain = self.loss(self.model("llama", model_type="llama"))
        window = self.model("window", model_type="mistral", sliding_window=16)
        self.assertEqual(self.loss(window), plain)
        self.ok("generate", "--model", window, "--prompt", "a", "--tokens", 4, "--window", 16, "--device", "cpu")
        for command in (["eval", "--data", next(self.data.glob("val*.bin")), "--seq", 17], ["generate", "--prompt", "a", "--window", 32]):
            self.ok(*command, "--model", window, "--device", "cpu")

    def test_inference_in_16_bits_keeps_two_bytes_a_weight(self):
        model = self.model("bf16", biases=1, model_type="qwen2")
        whole = self.loss(model)
        for engine in ("eager", "fused"):
            self.assertAlmostEqual(self.loss(model, "--dtype", "bf16", "--engine", engine) / whole, 1, places=2)
        self.ok("generate", "--model", model, "--prompt", "the cat", "--tokens", 8, "--dtype", "bf16", "--device", "cpu")
        for engine in ("eager", "fused"):
            text = self.ok("program", "--model", "llama3-8b", "--phase", "decode", "--batch", 1, "--seq", 128, "--dtype", "bf16",
                           "--engine", engine, "--device", "cpu", "--totals", "--format", "json")
            totals = json.loads(text)["totals"]
            self.assertLess(totals["memory"]["persistent_by_role"]["weight"], 2.001 * totals["params"])


class Experts(TrainingRuns):
    """Presets with experts, their load in records, and how they are split."""

    SMALL = ["--model", "tiny-moe", "--layers", "2", "--d-model", "32", "--heads", "2", "--d-ff", "16", "--vocab", "300", "--device", "cpu",
             "--batch", "2", "--seq", "16"]

    def test_published_presets_are_planned_and_say_why_they_do_not_run(self):
        for name in ("mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v3", "gemma3-1b"):
            with self.subTest(model=name):
                row, = plan("--model", name, "--device", "h100-sxm", "--seq", 1024)
                totals = json.loads(self.ok("program", "--model", name, "--seq", 128, "--batch", 1, "--device", "cpu", "--totals", "--format", "json"))
                self.assertEqual(row["params"], totals["totals"]["params"])
        # What a token keeps is compressed: 61 layers of 512 + 64 numbers.
        totals = json.loads(self.ok("program", "--model", "deepseek-v3", "--phase", "decode", "--seq", 4096, "--batch", 1, "--device", "cpu",
                                    "--dtype", "bf16", "--totals", "--format", "json"))["totals"]
        cache = totals["memory"]["persistent_by_role"]["cache"]
        self.assertEqual(cache % (61 * 576 * 2), 0)
        self.assertLess(cache, 61 * 128 * (192 + 128) * 4096 * 2 / 20)

    def test_records_have_the_rows_of_experts(self):
        for routing, least, most in (("balanced", 1, 1), ("random", 1.001, 4), ("learned", 1, 4)):
            record = self.folder / f"{routing}.rooflm"
            self.ok("bench", *self.SMALL, "--grad-accum", 2, "--steps", 3, "--warmup", 1, "--routing", routing, "-o", record)
            with contextlib.closing(sqlite3.connect(record)) as database:
                sums = database.execute("SELECT SUM(rows), COUNT(*) FROM expert_rows GROUP BY step, layer, micro_batch").fetchall()
            # Three steps of two layers and micro-batches: 32 tokens take 2 of 8 experts each.
            self.assertEqual(sums, [(64, 8)] * 12)
            rows = json.loads(self.ok("report", record, "--view", "experts", "--format", "json"))
            all_layers = next(row for row in rows_in(rows) if row.get("layer") == "all")
            self.assertLessEqual(least, all_layers["max_over_mean"])
            self.assertLessEqual(all_layers["max_over_mean"], most)
        record = self.folder / "train.rooflm"
        self.ok("train", *self.SMALL, "--data", self.data, "--out", self.folder / "trained", "--steps", 3, "-o", record)
        with contextlib.closing(sqlite3.connect(record)) as database:
            self.assertEqual(database.execute("SELECT COUNT(DISTINCT step), SUM(rows) FROM expert_rows").fetchall(), [(3, 3 * 2 * 64)])
        self.fails(2, "bench", "--model", "tiny", "--device", "cpu", "--routing", "balanced", says=["--routing balanced: tiny has no experts"])

    def test_ranks_that_share_experts_train_as_one(self):
        """Each rank has half of the experts; a micro-batch of the whole is what a rank has."""
        def numbers(name, *arguments, ranks=1):
            out = self.folder / name
            starter = ["launch", "-n", ranks, "--"] if ranks > 1 else []
            self.ok(*starter, "train", *self.SMALL, "--data", self.data, "--out", out, "--steps", 8, "--no-peak", "--threads", 1, *arguments)
            return numbers_of(out / "log.jsonl")
        whole = numbers("whole", "--grad-accum", 2)
        copies = numbers("copies", ranks=2)  # evaluates the same batches
        for name, ranks, *splits in (("zero0", 2, "--zero", 0), ("zero3", 2, "--zero", 3), ("tensor", 4, "--tp", 2, "--zero", 1),
                                     ("stages", 4, "--pp", 2, "--zero", 1), ("room", 2, "--expert-capacity", 4)):
            split = numbers(name, "--ep", 2, *splits, ranks=ranks)
            self.assertEqual(len(split), len(whole))
            for expected, keys in ((whole, ("loss", "grad_norm")), (copies, ("loss", "grad_norm", "val_loss"))):
                for a, b in zip(split, expected):
                    for key in keys:
                        if b[key] is not None:
                            self.assertLessEqual(abs(a[key] - b[key]), 1e-5 * abs(b[key]), (key, a, b))

    def test_splits_of_experts_are_checked(self):
        for code, text, *arguments in [(2, "--ep 3 does not divide the 8 experts of tiny-moe", "--ep", 3, "--dp", 3),
                                       (2, "--ep 4 does not divide the 2 data-parallel ranks", "--ep", 4, "--dp", 2),
                                       (5, "--sequence-parallel: ranks that share the experts of tiny-moe", "--ep", 2, "--dp", 2, "--tp", 2, "--sequence-parallel"),
                                       (2, "--tp 3 does not divide", "--tp", 3, "--dp", 2, "--ep", 2)]:
            self.fails(code, "program", "--model", "tiny-moe", "--device", "cpu", *arguments, says=[text])
        self.fails(2, "program", "--model", "tiny", "--device", "cpu", "--ep", 2, "--dp", 2, says=["--ep 2: tiny has no experts"])
        whole, split = (plan("--model", "qwen3-30b-a3b", "--device", "h100-sxm", "--dp", 8, "--ep", ep, "--seq", 1024)[0] for ep in (1, 8))
        experts = 48 * 128 * 3 * 2048 * 768
        self.assertAlmostEqual((whole["weight_bytes"] - split["weight_bytes"]) / (4 * experts * 7 / 8), 1, places=6)


class Lies(unittest.TestCase):
    """Files that say what cannot be: one line, and no memory of the size that they ask for."""

    KEYS = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 128, "num_local_experts": 8,
            "num_experts_per_tok": 2}
    COMMANDS = (["program", "--totals", "--device", "cpu"], ["plan", "--device", "h100-sxm"], ["bench", "--device", "cpu", "--steps", "1"])
    MOST_BYTES = 300e6

    def refused(self, folder, says):
        for command in self.COMMANDS:
            child = subprocess.Popen([BINARY, *command, "--model", folder, "--seq", "16", "--batch", "1"], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True)
            error = child.stderr.read()
            child.stderr.close()
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual((child.returncode, error.count("\n")), (3, 1), error)
            self.assertIn(says, error)
            self.assertLess(used.ru_maxrss * 1024, self.MOST_BYTES)

    def test_what_cannot_be_is_bad_input(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        for keys in ({"num_local_experts": 0}, {"num_local_experts": "8"}, {"num_local_experts": 2**62}, {"num_experts_per_tok": 9},
                     {"num_experts_per_tok": 2**31, "num_local_experts": 2**31}, {"num_hidden_layers": 2**40}, {"hidden_size": 2**62},
                     {"hidden_size": None}, {"vocab_size": 1.5}, {"vocab_size": True}, {"num_attention_heads": 3}, {"num_key_value_heads": 3},
                     {"sliding_window": 0}, {"sliding_window": -1}, {"head_dim": 7}, {"rope_theta": -1}, {"max_position_embeddings": 2**70},
                     {"intermediate_size": [96, 96.5]}, {"model_type": 3}):
            with self.subTest(**keys):
                text = json.dumps({key: value for key, value in (self.KEYS | keys).items() if value is not None})
                pathlib.Path(scratch.name, "config.json").write_text(text)
                self.refused(scratch.name, "config.json: ")


class LatentAttention(TrainingRuns):
    """A small relative of DeepSeek-V3: latent attention, a dense layer, experts in groups with a bias of their choice."""

    KEYS = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 300, "max_position_embeddings": 64,
            "q_lora_rank": 16, "kv_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 8,
            "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 4,
            "topk_group": 2, "tie_word_embeddings": False}

    def directory(self, name="deepseek", **keys):
        folder = self.folder / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(self.KEYS | keys))
        return folder

    def test_texts_are_those_of_the_model_without_a_cache(self):
        model = self.directory()
        shapes = {"model.embed_tokens.weight": (300, 32), "model.norm.weight": (32,), "lm_head.weight": (300, 32)}
        for layer, mlps in ((0, {"mlp.": 48}), (1, {"mlp.shared_experts.": 16} | {f"mlp.experts.{i}.": 16 for i in range(8)})):
            h = f"model.layers.{layer}."
            shapes |= {h + f"self_attn.{name}.weight": shape for name, shape in (
                ("q_a_proj", (16, 32)), ("q_a_layernorm", (16,)), ("q_b_proj", (48, 16)), ("kv_a_proj_with_mqa", (16, 32)),
                ("kv_a_layernorm", (12,)), ("kv_b_proj", (56, 12)), ("o_proj", (32, 24)))}
            shapes |= {h + "input_layernorm.weight": (32,), h + "post_attention_layernorm.weight": (32,)}
            for name, width in mlps.items():
                shapes |= {h + name + "gate_proj.weight": (width, 32), h + name + "up_proj.weight": (width, 32),
                           h + name + "down_proj.weight": (32, width)}
        shapes |= {"model.layers.1.mlp.gate.weight": (8, 32), "model.layers.1.mlp.gate.e_score_correction_bias": (8,)}
        write_weights(model, shapes, 0.1)
        (model / "tokenizer.json").write_text((self.data / "tokenizer.json").read_text())
        self.ok("train", "--model", model, "--data", self.data, "--out", self.out, "--steps", 30, "--batch", 4, "--seq", 16, "--lr", "0.01",
                "--no-peak", "--threads", 1, "--expert-bias-rate", "0.01", "--expert-capacity", "2", "--device", "cpu")
        for engine in ("eager", "fused"):
            made = [self.ok("generate", "--model", self.out, "--prompt", "the cat", "--prompt", "my friend likes", "--tokens", 24,
                            "--temperature", 0, "--ignore-eot", "--engine", engine, "--device", "cpu", *cache)
                    for cache in ([], ["--no-cache"])]
            self.assertEqual(made[0], made[1])
        record = self.folder / "decode.rooflm"
        self.ok("profile", "--model", model, "--phase", "decode", "--batch", 2, "--seq", 32, "--device", "cpu", "-o", record)
        self.assertIn("decode_latent_attention", self.ok("report", record, "--view", "ops"))
        self.ok("verify", record)

    def test_what_does_not_go_together_is_bad_input(self):
        for i, keys in enumerate((dict(n_group=3), dict(n_group=4, topk_group=5), dict(n_group=8, topk_group=1), dict(num_experts_per_tok=9),
                     dict(n_routed_experts=0), dict(n_routed_experts="8"), dict(n_group=0), dict(topk_group=-1), dict(kv_lora_rank=0),
                     dict(kv_lora_rank=None), dict(qk_rope_head_dim=3), dict(num_attention_heads=2**40), dict(topk_method="best"),
                     dict(hidden_size=None), dict(num_hidden_layers=0), dict(moe_intermediate_size=1.5))):
            with self.subTest(**keys):
                model = self.directory(f"bad{i}", **keys)
                for command in (["bench"], ["program", "--totals"]):
                    self.fails(3, *command, "--model", model, "--device", "cpu", "--seq", 16, "--batch", 1, says=["config.json: "])
        model = self.directory()
        for option, text in ((("--expert-capacity", "-1"), "--expert-capacity"), (("--expert-bias-rate", "-1"), "--expert-bias-rate"),
                             (("--clip", "-1"), "--clip must be at least 0, got -1"), (("--clip", "inf"), "--clip"),
                             (("--expert-bias-rate", "nan"), "--expert-bias-rate"), (("--ep", "3", "--dp", "3"), "--ep 3 does not divide"),
                             (("--ep", "8", "--dp", "4"), "--ep 8 does not divide the 4 data-parallel ranks"),
                             (("--dp", "2", "--expert-bias-rate", "1"), "needs one rank")):
            self.fails(2, "program", "--model", model, "--device", "cpu", "--seq", 16, "--batch", 1, *option, says=[text])


def rows_in(value):
    """The objects of a document that have no others in them."""
    if isinstance(value, list):
        for one in value:
            yield from rows_in(one)
    elif isinstance(value, dict):
        inner = [one for one in value.values() if isinstance(one, (list, dict))]
        for one in inner:
            yield from rows_in(one)
        if not inner:
            yield value


if __name__ == "__main__":
    BINARY = TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
