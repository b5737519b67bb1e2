#!/usr/bin/env python3
"""Quantised models: written, read by all commands, priced, and bad input.

Usage: test_quantize.py BINARY [unittest options]"""

import json
import math
import pathlib
import shutil
import struct
import sys
import unittest

from training_runs import TINY, TrainingRuns

WIDE = ["--model", "tiny", "--arch", "llama", "--layers", "2", "--d-model", "128", "--heads", "2", "--d-ff", "256",
        "--batch", "4", "--seq", "32", "--lr", "0.01", "--no-peak", "--threads", "1"]


def tensors_of(path):
    """The header of a safetensors file, and the bytes of each tensor."""
    raw = path.read_bytes()
    start = 8 + struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:start])
    header.pop("__metadata__", None)
    return header, {name: raw[start + first:start + end] for name, (first, end) in
                    ((name, tensor["data_offsets"]) for name, tensor in header.items())}


def write_tensors(path, tensors):
    """By name: dtype, shape and bytes."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    value = mantissa * 2.0 ** -9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -value if code & 128 else value


def numbers_of(name, data):
    """The numbers of a matrix, as compressed-tensors and bitsandbytes define their tensors."""
    if name + ".absmax" in data:
        state = json.loads(data[name + ".quant_state.bitsandbytes__nf4"])
        table, second = floats(data[name + ".quant_map"]), floats(data[name + ".nested_absmax"])
        scale_table = floats(data[name + ".nested_quant_map"])
        scales = [scale_table[code] * second[i // state["nested_blocksize"]] + state["nested_offset"]
                  for i, code in enumerate(data[name + ".absmax"])]
        codes = [code for byte in data[name] for code in (byte >> 4, byte & 15)]  # the first in the upper half
        return [table[code] * scales[i // state["blocksize"]] for i, code in enumerate(codes)]
    scales = floats(data[name + "_scale"])
    if name in data:
        values = [e4m3(code) for code in data[name]]
    else:
        count = math.prod(struct.unpack("<2q", data[name + "_shape"]))
        bits = 8 * len(data[name + "_packed"]) // count
        words = struct.unpack(f"<{len(data[name + '_packed']) // 4}I", data[name + "_packed"])
        values = [(word >> shift & (1 << bits) - 1) - (1 << bits - 1) for word in words for shift in range(0, 32, bits)]
    group = len(values) // len(scales)
    return [value * scales[i // group] for i, value in enumerate(values)]


class Quantised(TrainingRuns):
    def setUp(self):
        super().setUp()
        self.ok("train", "--data", self.data, "--out", self.out, *WIDE, "--steps", 20)
        self.base = self.folder / "base"
        shutil.copytree(self.out / "latest", self.base)

    def quantize(self, *arguments, output="q", model=None):
        rows = json.loads(self.ok("quantize", "--model", model or self.base, "-o", self.folder / output, "--threads", 1,
                                  "--seq", 32, "--data", self.data, "--format", "json", *arguments))
        self.assertEqual(len(rows), 2)
        return rows

    def val_loss(self, model, *arguments):
        return json.loads(self.ok("eval", "--model", model, "--data", self.data, "--batch", 2, "--seq", 32, "--threads", 1,
                                  "--format", "json", *arguments))[0]["loss"]

    def test_each_format_is_written_and_read(self):
        plain = self.val_loss(self.base)
        losses = {}
        for weights, most in (("int8", 0.01), ("fp8", 0.05), ("int4", 0.2), ("nf4", 0.2)):
            with self.subTest(weights=weights):
                before, after = self.quantize("--weights", weights, output=weights)
                self.assertEqual(before["bytes"], (self.base / "model.safetensors").stat().st_size, "no optimizer state")
                self.assertLess(after["bytes"], before["bytes"])
                losses[weights] = self.val_loss(self.folder / weights)
                self.assertLess(abs(losses[weights] - plain), most)
                self.assertNotEqual(losses[weights], plain)
                self.ok("generate", "--model", self.folder / weights, "--prompt", "the cat", "--tokens", 4, "--threads", 1)
        config = json.loads((self.folder / "int4" / "config.json").read_text())["quantization_config"]
        self.assertEqual((config["quant_method"], config["format"]), ("compressed-tensors", "pack-quantized"))
        tensors, _ = tensors_of(self.folder / "int4" / "model.safetensors")
        name = "model.layers.0.mlp.down_proj.weight"
        self.assertEqual(tensors[name + "_packed"], tensors[name + "_packed"] | {"dtype": "I32", "shape": [128, 32]})
        self.assertEqual(tensors[name + "_scale"]["shape"], [128, 2])
        tensors, _ = tensors_of(self.folder / "nf4" / "model.safetensors")
        self.assertEqual(tensors[name]["dtype"], "U8")
        self.assertIn(name + ".quant_state.bitsandbytes__nf4", tensors)

    def test_gptq_with_a_text_and_sparsity(self):
        self.quantize("--weights", "int4", "--method", "gptq", "--samples", 16)
        self.assertLess(abs(self.val_loss(self.folder / "q") - self.val_loss(self.base)), 0.2)
        self.quantize("--sparse", "2:4", output="sparse")
        loss = self.val_loss(self.folder / "sparse")
        self.assertAlmostEqual(self.val_loss(self.folder / "sparse", "--base", "2:4"), loss, places=2)

    def test_adapters_train_beside_a_quantised_model(self):
        self.quantize("--weights", "nf4")
        shutil.rmtree(self.out)
        self.ok("train", "--data", self.data, "--out", self.out, "--model", self.folder / "q", "--lora", "4", "--batch", 4,
                "--seq", 32, "--lr", "0.02", "--steps", 6, "--no-peak", "--threads", 1)
        self.assertLess(self.val_loss(self.out), self.val_loss(self.folder / "q"))
        self.ok("train", "--data", self.data, "--out", self.folder / "dora", "--model", self.folder / "q", "--lora", "4,dora",
                "--batch", 4, "--seq", 32, "--lr", "0.02", "--steps", 6, "--no-peak", "--threads", 1)
        self.assertLess(self.val_loss(self.folder / "dora"), self.val_loss(self.folder / "q"))
        self.fails(2, "train", "--data", self.data, "--out", self.folder / "x", "--model", self.folder / "q", "--batch", 4,
                   "--seq", 32, "--steps", 2, "--no-peak", "--threads", 1, says=("--base nf4", "--lora"))

    def test_both_engines_read_the_same_numbers(self):
        self.ok("quantize", "--model", self.base, "-o", self.folder / "q", "--weights", "int4")
        losses = [self.val_loss(self.folder / "q", "--engine", engine) for engine in ("eager", "fused")]
        self.assertAlmostEqual(*losses, delta=1e-5)
        self.assertAlmostEqual(self.val_loss(self.base, "--base", "int4"), losses[1], delta=1e-5)
        texts = {self.ok("generate", "--model", self.folder / "q", "--prompt", "the cat", "--tokens", 8, "--threads", 1,
                         "--engine", engine) for engine in ("eager", "fused")}
        self.assertEqual(len(texts), 1)

    def test_files_are_those_of_other_tools(self):
        """Their definitions, followed number by number, give a plain model of the same loss."""
        header, data = tensors_of(self.base / "model.safetensors")
        for weights in ("int8", "int4", "nf4", "fp8"):
            with self.subTest(weights=weights):
                self.ok("quantize", "--model", self.base, "-o", self.folder / weights, "--weights", weights)
                _, packed = tensors_of(self.folder / weights / "model.safetensors")
                plain = self.folder / f"plain-{weights}"
                plain.mkdir()
                shutil.copy(self.base / "config.json", plain)
                tensors = {}
                for name, tensor in header.items():
                    numbers = data[name]
                    if name.startswith("model.layers") and "norm" not in name:
                        numbers = numbers_of(name, packed)
                        numbers = struct.pack(f"<{len(numbers)}f", *numbers)
                    tensors[name] = (tensor["dtype"], tensor["shape"], numbers)
                write_tensors(plain / "model.safetensors", tensors)
                self.assertAlmostEqual(self.val_loss(plain), self.val_loss(self.folder / weights), delta=1e-5)

    def test_what_is_not_packed_keeps_its_dtype(self):
        """Files of 16 bits: embeddings stay so, and need no more room."""
        header, data = tensors_of(self.base / "model.safetensors")
        plain = self.folder / "bf16"
        plain.mkdir()
        write_tensors(plain / "model.safetensors",
                      {name: ("BF16", tensor["shape"], b"".join(data[name][i + 2:i + 4] for i in range(0, len(data[name]), 4)))
                       for name, tensor in header.items()})
        shutil.copy(self.base / "config.json", plain)
        self.ok("quantize", "--model", plain, "-o", self.folder / "q", "--weights", "int8")
        tensors, _ = tensors_of(self.folder / "q" / "model.safetensors")
        self.assertEqual(tensors["model.embed_tokens.weight"]["dtype"], "BF16")
        self.assertEqual(json.loads((self.folder / "q" / "config.json").read_text())["torch_dtype"], "bfloat16")

    def test_bytes_and_flops_are_those_of_codes(self):
        def step(base):
            rows = json.loads(self.ok("program", "--model", "gpt2", "--layers", 2, "--batch", 1, "--seq", 64, "--phase", "decode",
                                      "--device", "null", "--base", base, "--format", "json"))
            ops = [op for op in rows["ops"] if op["op"] == "matmul" and "/feed_forward" in op["scope"]]
            return sum(op["bytes_read"] for op in ops), sum(op["matmul_flop"] for op in ops)
        plain, flop = step("plain")
        for base, least, most in (("int8", 0.25, 0.27), ("int4", 0.132, 0.14), ("nf4", 0.129, 0.135), ("2:4", 0.28, 0.29)):
            read, own = step(base)
            self.assertEqual(own, flop)
            self.assertTrue(least * plain < read < most * plain, f"{base}: {read / plain}")

    def test_bad_input(self):
        self.quantize("--weights", "int8")
        out = self.folder / "other"
        again = ("quantize", "--model", self.folder / "q", "--weights", "int4", "-o", out)
        self.fails(3, *again, says=("int8 already",))
        self.fails(2, "quantize", "--model", self.base, "--weights", "int44", "-o", out, says=("did you mean", "int4"))
        self.fails(2, "quantize", "--model", self.base, "--weights", "bf16", "-o", out, says=("int8",))
        self.fails(2, "quantize", "--model", self.base, "-o", out, says=("--weights",))
        self.fails(2, "quantize", "--model", self.base, "--weights", "int4", says=("-o",))
        self.fails(2, "quantize", "--model", self.base, "--weights", "int8", "-o", self.folder / "q", says=("exists",))
        self.fails(2, "quantize", "--model", self.base, "--weights", "int4", "--method", "gptq", "-o", out, says=("--data",))
        self.fails(2, "quantize", "--model", self.base, "--weights", "nf4", "--method", "gptq", "--data", self.data, "-o", out,
                   says=("int4",))
        self.fails(3, "quantize", "--model", self.base, "--weights", "int4", "--method", "gptq", "--data", self.data, "--seq", 32,
                   "--samples", 100000, "-o", out, says=("100000",))
        self.fails(2, "eval", "--model", self.folder / "q", "--data", self.data, "--base", "int4", says=("int8 already",))
        for split in (("--tp", 2), ("--pp", 2), ("--zero", 1, "--dp", 2)):
            self.fails(5, "program", "--model", "gpt2", "--batch", 2, "--base", "int8", *split,
                       says=("--base int8", "leave out"))
        self.fails(2, "quantize", "--model", "gpt2", "--weights", "int4", "-o", out, says=("gpt2",))
        empty = self.folder / "empty"
        empty.mkdir()
        shutil.copy(self.base / "config.json", empty)
        self.fails(3, "quantize", "--model", empty, "--weights", "int4", "-o", out, says=("model.safetensors",))
        self.ok("train", "--data", self.data, "--out", self.out.with_name("narrow"), *TINY, "--steps", 1)
        narrow = ("quantize", "--model", self.out.with_name("narrow"), "-o", out, "--weights")
        self.fails(2, *narrow, "int4", says=("rows of 32", "multiple of 128"))
        self.fails(2, *narrow, "int4", "--method", "gptq", "--data", self.data, "--seq", 16, says=("rows of 32",))
        path = self.folder / "q" / "config.json"
        config = json.loads(path.read_text())
        config["quantization_config"] = {"quant_method": "awq", "bits": 4}
        path.write_text(json.dumps(config))
        self.fails(5, "eval", "--model", self.folder / "q", "--data", self.data, says=("awq",))
        totals = self.ok("program", "--model", self.folder / "q", "--seq", 16, "--totals")
        self.assertIn("quantised (awq)", totals)
        self.assertFalse(out.exists())


if __name__ == "__main__":
    Quantised.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
