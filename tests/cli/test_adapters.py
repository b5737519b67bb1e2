#!/usr/bin/env python3
"""Training adapters beside a model's frozen weights: files, merging, resuming, and bad input.

Usage: test_adapters.py BINARY [unittest options]"""

import json
import pathlib
import shutil
import struct
import sys
import unittest

from training_runs import TrainingRuns, numbers_of


def header_of(path):
    raw = path.read_bytes()
    return json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])


class Adapters(TrainingRuns):
    def setUp(self):
        super().setUp()
        self.train("--steps", "2")
        self.base = self.folder / "base"
        shutil.move(self.out, self.base)

    def tune(self, *arguments):
        self.ok("train", "--data", self.data, "--out", self.out, "--model", self.base, "--batch", 2, "--seq", 16,
                "--lr", "0.02", "--no-peak", "--threads", 1, "--schedule", "constant", *arguments)

    def val_loss(self, model):
        return json.loads(self.ok("eval", "--model", model, "--data", self.data, "--batch", 2, "--seq", 16, "--threads", 1,
                                  "--format", "json"))[0]["loss"]

    def lines(self):
        """The log without validation losses, which are known where a run ends."""
        return [line | {"val_loss": None} for line in numbers_of(self.out / "log.jsonl")]

    def test_an_adapter_is_written_continued_and_merged(self):
        for dtype in ("fp32", "bf16"):
            with self.subTest(dtype=dtype):
                shutil.rmtree(self.out, ignore_errors=True)
                self.tune("--lora", "4,alpha=16,targets=all-linear", "--steps", 6, "--dtype", dtype)
                adapter = self.out / "latest"
                names = {path.name for path in adapter.iterdir()}
                self.assertNotIn("model.safetensors", names)
                config = json.loads((adapter / "adapter_config.json").read_text())
                self.assertEqual((config["peft_type"], config["r"], config["lora_alpha"]), ("LORA", 4, 16))
                self.assertEqual(pathlib.Path(config["base_model_name_or_path"]).resolve().parent, self.base.resolve())
                tensors = header_of(adapter / "adapter_model.safetensors")
                tensors.pop("__metadata__", None)
                self.assertTrue(all(name.startswith("base_model.model.") for name in tensors))
                self.assertLess(self.val_loss(self.out), self.val_loss(self.base))
                lines = self.lines()
                whole = (adapter / "adapter_model.safetensors").read_bytes()
                shutil.rmtree(self.out)
                self.tune("--lora", "4,alpha=16,targets=all-linear", "--steps", 3, "--dtype", dtype)
                self.ok("train", "--out", self.out, "--resume", "--steps", 6, "--no-peak", "--threads", 1)
                self.assertEqual((adapter / "adapter_model.safetensors").read_bytes(), whole)
                self.assertEqual(self.lines(), lines)
        self.export_and_compare()

    def export_and_compare(self):
        merged = self.folder / "merged"
        shutil.rmtree(merged, ignore_errors=True)
        self.ok("export", self.out, "--format", "huggingface", "-o", merged)
        self.assertEqual(self.val_loss(self.out), self.val_loss(merged))

    def test_dora_and_rslora_are_written_continued_and_merged(self):
        for lora, dtype in (("4,alpha=8,dora,targets=all-linear", "fp32"), ("4,rslora,dora,targets=all-linear", "bf16")):
            with self.subTest(lora=lora, dtype=dtype):
                shutil.rmtree(self.out, ignore_errors=True)
                arguments = ("--lora", lora, "--dtype", dtype, "--grad-accum", 2)
                self.tune(*arguments, "--steps", 6)
                adapter = self.out / "latest"
                config = json.loads((adapter / "adapter_config.json").read_text())
                self.assertEqual((config["use_dora"], config["use_rslora"]), (True, "rslora" in lora))
                tensors = header_of(adapter / "adapter_model.safetensors")
                self.assertEqual(tensors["base_model.model.transformer.h.0.attn.c_attn.lora_magnitude_vector"]["shape"], [3 * 32])
                self.assertLess(self.val_loss(self.out), self.val_loss(self.base))
                # What training saw without merging, of weights that bf16 rounds.
                logged = numbers_of(self.out / "log.jsonl")[-1]["val_loss"]
                self.assertAlmostEqual(logged, self.val_loss(self.out), delta=1e-5 if dtype == "fp32" else 2e-2)
                whole, lines = (adapter / "adapter_model.safetensors").read_bytes(), self.lines()
                shutil.rmtree(self.out)
                self.tune(*arguments, "--steps", 3)
                self.ok("train", "--out", self.out, "--resume", "--steps", 6, "--no-peak", "--threads", 1)
                self.assertEqual((adapter / "adapter_model.safetensors").read_bytes(), whole)
                self.assertEqual(self.lines(), lines)
        self.export_and_compare()
        self.ok("generate", "--model", self.out, "--prompt", "the cat", "--tokens", 4, "--threads", 1)
        for engine in ("eager", "fused"):
            rows = json.loads(self.ok("bench", "--model", "tiny", "--batch", 2, "--seq", 16, "--device", "cpu", "--engine", engine,
                                      "--lora", "4,dora", "--steps", 2, "--warmup", 0, "--no-peak", "--format", "json"))
            self.assertEqual(rows[0]["status"], "success")

    def test_an_adapter_of_others_needs_no_config_and_names_its_base(self):
        self.tune("--lora", "4,dora", "--steps", 4)
        loss = self.val_loss(self.out)
        theirs = self.folder / "theirs"
        theirs.mkdir()
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            shutil.copy(self.out / "latest" / name, theirs)
        config = json.loads((theirs / "adapter_config.json").read_text())
        self.assertEqual(self.val_loss(theirs), loss)
        self.ok("generate", "--model", theirs, "--prompt", "the cat", "--tokens", 4, "--threads", 1)
        base = config["base_model_name_or_path"]
        (theirs / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": "some/model"}))
        self.fails(3, "eval", "--model", theirs, "--data", self.data, "--batch", 2, "--seq", 16,
                   says=("adapter_config.json", "base_model_name_or_path", "some/model", "ln -s DIR"))
        (theirs / "base_model").symlink_to(base)
        self.assertEqual(self.val_loss(theirs), loss)
        merged = self.folder / "merged"
        self.ok("export", theirs, "--format", "huggingface", "-o", merged)
        self.assertEqual(self.val_loss(merged), loss)

    def test_bad_input(self):
        tune = ("train", "--data", self.data, "--out", self.out, "--model", self.base, "--batch", 2, "--seq", 16, "--no-peak",
                "--steps", 1)
        self.fails(2, *tune, "--lora", "33,targets=all-linear", says=("rank is above",))
        self.fails(2, *tune, "--lora", "2,targets=q_prj", says=("q_proj",))
        self.fails(2, *tune, "--lora", "2,beta=1", says=("beta=1",))
        self.fails(2, "train", "--data", self.data, "--out", self.out, "--model", "tiny", "--no-peak", "--steps", 1, "--lora", 2,
                   says=("--model DIR",))
        self.fails(5, "program", "--model", "tiny", "--device", "null", "--dp", 2, "--zero", 2, "--lora", 2, says=("--lora",))
        self.tune("--lora", "2", "--steps", 1)
        resume = ("train", "--out", self.out, "--resume", "--no-peak", "--steps", 2)
        self.fails(2, *resume, "--lora", "4", says=("--lora 4",))
        self.fails(2, *tune[:3], "--out", self.folder / "more", "--model", self.out, "--no-peak", "--steps", 1, "--lora", 2,
                   says=("export",))
        config = (self.out / "latest/adapter_config.json").resolve()
        text = config.read_text()
        for change, says in ((('"r": 2', '"r": 4'), "another model"), (('"LORA"', '"IA3"'), "peft_type"),
                             (('"none"', '"all"'), "bias")):
            other = self.folder / "other"
            shutil.rmtree(other, ignore_errors=True)
            shutil.copytree(config.parent, other)
            (other / "state.json").unlink()
            (other / "adapter_config.json").write_text(text.replace(*change))
            self.fails(3, "eval", "--model", other, "--data", self.data, "--batch", 2, "--seq", 16, says=(says,))


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
