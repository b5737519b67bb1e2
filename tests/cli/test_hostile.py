#!/usr/bin/env python3
"""Files of somebody else, and sizes that no machine has: an exit code of the contract and one short line, in seconds.

Usage: test_hostile.py BINARY [unittest options]"""

import json
import os
import pathlib
import resource
import sqlite3
import struct
import subprocess
import sys
import time
import unittest

from training_runs import TINY, TrainingRuns

DEEP = '{"a":' + "[" * 200_000 + "]" * 200_000 + "}"
LARGE = '{"a":\n1e999}'


class Hostile(TrainingRuns):
    def refuses(self, code, *arguments, says=(), cwd=None):
        """Ends soon with this code and one line that is short, holds `says` and nothing that a terminal obeys."""
        start = time.monotonic()
        result = self.run_rooflm(*arguments, cwd=cwd or self.folder)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stderr[-500:]}")
        self.assertLess(time.monotonic() - start, 60)
        lines = [line for line in result.stderr.splitlines() if line.startswith("rooflm: ")]
        self.assertEqual(len(lines), 1, result.stderr[-500:])
        self.assertLess(len(lines[0]), 1500)
        self.assertTrue(lines[0].isprintable(), ascii(lines[0]))
        for text in says:
            self.assertIn(text, lines[0])
        return lines[0]

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path


class Messages(Hostile):
    def test_long_ones_lose_their_middle(self):
        name = "name" * 1000
        line = self.refuses(3, "report", f"the_begin{name}the_end", says=["the_begin", "the_end", "characters are left out", "too long"])
        self.assertNotIn(name, line)


class Sizes(Hostile):
    def test_products_that_overflow_are_usage_errors(self):
        for strategy in ("big", "looped", "batched"):
            self.refuses(2, "gemm", "--count", 72057594037927936, "--strategy", strategy, says=["72057594037927936"])
            self.refuses(2, "gemm", "--count", 3, "--size", 4294967296, "--strategy", strategy, says=["4294967296"])
        for kind in ("looped", "batched", "flash"):
            self.refuses(2, "attention", "--batch", 4294967296, "--seq", 4096, "--attention", kind)
        self.refuses(2, "study", "gemm", "--count", 72057594037927936, "--n", 1024, says=["72057594037927936"])

    def test_a_step_that_overflows_is_a_usage_error(self):
        step = ["--model", "llama3-8b", "--d-model", 8388608, "--layers", 1, "--batch", 1024, "--seq", 8192,
                "--vocab", 256]
        self.refuses(2, "program", "--device", "null", *step, says=["smaller"])
        self.refuses(2, "bench", "--device", "null", *step, says=["smaller"])

    def test_no_number_of_a_large_plan_is_negative(self):
        text = self.ok("program", "--device", "null", "--model", "gpt3-175b", "--batch", 4096, "--seq", 2048, "--vocab", 256, "--format", "json")
        totals = json.loads(text)["totals"]
        self.assertNotIn("-", json.dumps(totals))

    def test_ranges_end_at_the_largest_number(self):
        self.refuses(2, "program", "--seq", "9223372036854775800:9223372036854775807:5")
        self.refuses(2, "program", "--seq=-9223372036854775808:9223372036854775807:9223372036854775807")

    def test_threads_have_a_limit(self):
        text = self.write("a.txt", "one two three")
        for threads in (100_000, 4_294_967_297):
            self.refuses(2, "data", "prepare", text, "-o", self.folder / "d", "--threads", threads, says=["--threads"])


class Json(Hostile):
    def readers(self, text):
        """One command for each kind of file that holds JSON, with the file's name."""
        header = text.encode()
        config = json.dumps({"model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 8, "vocab_size": 16,
                             "n_positions": 8})
        self.write("config/config.json", text)
        self.write("weights/config.json", config)
        self.write("weights/model.safetensors", struct.pack("<Q", len(header)) + header)
        self.write("index/config.json", config)
        self.write("index/model.safetensors.index.json", text)
        self.write("state/config.json", config)
        self.write("state/state.json", text)
        self.write("meta/meta.json", text)
        words = self.write("a.txt", "one two three")
        yield "config.json", ["program", "--model", self.folder / "config"]
        yield "model.safetensors", ["eval", "--model", self.folder / "weights", "--data", self.data, "--seq", 8]
        yield "index.json", ["eval", "--model", self.folder / "index", "--data", self.data, "--seq", 8]
        yield "state.json", ["program", "--model", self.folder / "state"]
        yield "model.json", ["program", "--model", self.write("model.json", text)]
        yield "meta.json", ["data", "info", self.folder / "meta"]
        yield "t.json", ["data", "tokenize", "--tokenizer", self.write("t.json", text), words]

    def test_depth_and_numbers_have_limits_in_every_reader(self):
        for text, says in ((DEEP, "deeper than 64 levels"), (LARGE, "1e999 at line 2")):
            for name, command in self.readers(text):
                with self.subTest(name=name, says=says):
                    self.refuses(3, *command, says=[name, says])

    def test_a_deep_checkpoint_or_log_does_not_resume(self):
        self.train("--steps", 2, "--schedule", "constant")
        command = ["train", "--data", self.data, "--out", self.out, *TINY, "--steps", 4, "--schedule", "constant", "--resume"]
        state = self.checkpoints()[-1] / "state.json"
        whole = state.read_text()
        for text in (DEEP, LARGE, whole.replace('"step": 2', '"step": 1'), whole.replace('"lr": "', '"lr": "1')):
            state.write_text(text)
            self.refuses(3, *command, says=["state.json"])
        state.write_text(whole)
        log = self.out / "log.jsonl"
        log.write_text(DEEP + "\n")
        self.refuses(3, *command, says=["log.jsonl"])


class Paths(Hostile):
    def test_a_path_that_is_empty_names_no_file(self):
        text = self.write("a.txt", "one two three")
        for command in (["train", "--data", "", "--out", self.out, "--steps", 1, *TINY],
                        ["train", "--data", self.data, "--out", "", "--steps", 1, *TINY],
                        ["data", "prepare", text, "-o", ""], ["data", "info", ""], ["report", ""],
                        ["bench", "--device", "null", "--model", "tiny", "-o", ""]):
            self.refuses(2, *command, says=["is empty"])

    def test_an_option_without_a_value_takes_none_from_what_follows(self):
        for command, name in ((["train", "--data", self.data, "--out=", "-q", "--steps", 1], "--out"),
                              (["train", "--data", self.data, "--out", self.out, "--steps", 1, "--layers", ""], "--layers"),
                              (["train", "--data", self.data, "--out", self.out, "--steps", 1, "--memory-limit", ""], "--memory-limit"),
                              (["program", "--layers", 1, "--model=", "--seq", 8], "--model"), (["bench", "--dtype="], "--dtype")):
            self.refuses(2, *command, says=[f"{name} is empty"])
        self.assertFalse(pathlib.Path("-q").exists())

    def test_what_follows_two_dashes_is_a_path(self):
        self.write("-x.txt", "one two three " * 200)
        self.write("--seed=", "four five six " * 200)
        result = self.run_rooflm("data", "prepare", "-o", "d", "--vocab", "280", "--", "-x.txt", "--seed=", cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.refuses(2, "data", "prepare", "-o", self.folder / "e", "--sed", 1, "--", "-x.txt", says=["unknown option '--sed'"])

    def test_loops_of_links_are_named(self):
        loop = self.folder / "loop"
        loop.symlink_to("loop")
        for command in (["train", "--data", loop, "--out", self.out, "--steps", 1, *TINY],
                        ["train", "--data", self.data, "--out", loop, "--steps", 1, *TINY],
                        ["data", "prepare", loop, "-o", self.out], ["data", "prepare", self.data, "-o", loop],
                        ["program", "--model", loop], ["data", "info", loop], ["report", loop],
                        ["study", self.folder / "loop.toml"],
                        ["bench", "--device", "null", "--model", "tiny", "-o", loop / "a.rooflm"]):
            result = self.run_rooflm(*command)
            self.assertIn(result.returncode, (2, 3), f"{command}: {result.stderr}")

    @unittest.skipIf(os.geteuid() == 0, "the superuser may read everything")
    def test_folders_without_permission_are_named(self):
        closed = self.folder / "closed"
        closed.mkdir(mode=0)
        self.addCleanup(closed.chmod, 0o700)
        for command in (["data", "prepare", closed, "-o", self.out], ["data", "info", closed / "a.bin"],
                        ["program", "--model", closed / "m.json"], ["report", closed / "r.rooflm"]):
            self.refuses(3, *command, says=["Permission denied"])


class Pointers(Hostile):
    LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345678\n"
    CONFIG = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
              "num_attention_heads": 2, "vocab_size": 300, "max_position_embeddings": 64}

    def test_a_pointer_of_git_lfs_is_named_in_place_of_any_file(self):
        pointer = self.write("lfs/model.safetensors", self.LFS)
        self.write("lfs/config.json", json.dumps(self.CONFIG))
        self.write("index/config.json", json.dumps(self.CONFIG))
        self.write("index/model.safetensors.index.json", json.dumps({"weight_map": {"model.norm.weight": "a.safetensors"}}))
        self.write("index/a.safetensors", self.LFS)
        self.write("tokenizer/tokenizer.json", self.LFS)
        words = self.write("a.txt", "one two three")
        shard = next(self.data.glob("val*.bin"))
        for name in ("a.bin", "a.rooflm", "a.json", "a.json.gz", "a.sqlite", "a.txt.lfs"):
            self.write(name, self.LFS)
        for command in (["eval", "--model", pointer.parent, "--data", shard, "--seq", 8],
                        ["generate", "--model", pointer.parent, "--prompt", "a"],
                        ["eval", "--model", self.folder / "index", "--data", shard, "--seq", 8],
                        ["data", "tokenize", "--tokenizer", self.folder / "tokenizer", words],
                        ["data", "tokenize", "--tokenizer", self.data, self.folder / "a.txt.lfs"],
                        ["data", "info", self.folder / "a.bin"],
                        ["program", "--model", self.folder / "a.json"],
                        ["report", self.folder / "a.rooflm"], ["verify", self.folder / "a.rooflm"],
                        ["import", self.folder / "a.json", "-o", self.folder / "o.rooflm"],
                        ["import", self.folder / "a.json.gz", "-o", self.folder / "o.rooflm"],
                        ["import", self.folder / "a.sqlite", "-o", self.folder / "o.rooflm"]):
            self.refuses(3, *command, says=["a pointer of Git LFS, not the file: run git lfs pull"])

    def test_a_missing_shard_is_named_before_memory_is_taken(self):
        config = dict(self.CONFIG, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
                      num_attention_heads=32, vocab_size=32000)
        self.write("m/config.json", json.dumps(config))
        self.write("m/model.safetensors.index.json",
                   json.dumps({"weight_map": {"model.embed_tokens.weight": "model-00001-of-00002.safetensors"}}))
        shard = next(self.data.glob("val*.bin"))
        limit = 4 << 30  # the model has 27 GB
        for command in (["generate", "--model", "m", "--prompt", "a"], ["eval", "--model", "m", "--data", shard, "--seq", 8]):
            result = subprocess.run([self.binary, *map(str, command)], capture_output=True, text=True, cwd=self.folder,
                                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIn("the shard model-00001-of-00002.safetensors is missing", result.stderr)


class Records(Hostile):
    def record(self):
        path = self.folder / "r.rooflm"
        self.ok("bench", "--device", "null", *TINY[:8], "-o", path)
        return path

    def test_views_do_not_stand_for_tables(self):
        path = self.record()
        with sqlite3.connect(path) as file:
            file.execute("DROP TABLE run")
            file.execute("CREATE VIEW run AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) "
                         "SELECT id, 'x' AS label, 'step' AS kind, 'success' AS status FROM n")
        for command in ("report", "verify"):
            self.refuses(3, command, path, says=["r.rooflm", "damaged"])

    def test_names_in_a_record_do_not_steer_the_terminal(self):
        path = self.record()
        with sqlite3.connect(path) as file:
            file.execute("UPDATE config SET value = ? WHERE key = 'model'", ("\x1b[2J\u202emodel\n| <script>",))
            file.execute("UPDATE meta SET value = ? WHERE key = 'command'", ("\x1b]0;title\x07",))
        for form in ("table", "md"):
            result = self.run_rooflm("report", path, "--format", form)
            self.assertEqual(result.returncode, 0, result.stderr)
            for bad in ("\x1b", "\x07", "\u202e"):
                self.assertNotIn(bad, result.stdout)
            self.assertIn("\\x1b", result.stdout)
        cells = [line for line in result.stdout.splitlines() if line.startswith("|")]
        self.assertFalse([line for line in cells if " <script>" in line])


class Messages(Hostile):
    def test_texts_of_files_are_shown_in_part(self):
        long = "x" * 100_000
        self.write("m/config.json", json.dumps({"model_type": long}))
        self.refuses(3, "program", "--model", self.folder / "m", says=["model_type", "bytes)"])
        self.refuses(3, "program", "--model", self.write("m.json", json.dumps({long: 1})), says=["unknown key"])
        self.refuses(3, "program", "--model", self.write("n.json", json.dumps({"layers": long})), says=["layers"])
        self.refuses(2, "program", "--model", long, says=["unknown model"])
        self.refuses(2, "program", "--seq", long, says=["--seq"])
        self.refuses(2, long)
        self.write("d/meta.json", json.dumps({"format": "\x1b[2J" + long}))
        self.refuses(3, "data", "info", self.folder / "d", says=["'format'", "\\"])

    def test_a_study_says_where_its_values_are_wrong(self):
        head = 'title = "a"\nquestion = "b"\nviews = ["sweep"]\n[options]\ndevice = "null"\n'
        for value, says in (('model = "gtp2"', "6: model: unknown model"), ("batch = 0", "6: batch: --batch"),
                            ("heads = 7", "6: heads: --heads"), ('seq = "' + "9" * 5000 + '"', "6: seq: --seq")):
            study = self.write("s.toml", head + value + "\n")
            self.refuses(3, "study", study, says=["s.toml:" + says])
        study = self.write("s.toml", head.replace("sweep", "nosuch"))
        self.refuses(3, "study", study, says=["s.toml:3: views: unknown view 'nosuch'"])
        study = self.write("s.toml", head)
        self.refuses(2, "study", study, "--batch", 0, says=["--batch"])

    def test_a_splitting_pattern_is_explained(self):
        tokenizer = json.loads((self.data / "tokenizer.json").read_text())
        words = self.write("a.txt", "a" * 40 + "!")
        for pattern, says in (("(", "is not a regular expression"), ("(a+a+)+$", "splitting pattern fails"),
                              ("a" * 100_000, "at most")):
            split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
            level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
            tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, level]}
            path = self.write("t.json", json.dumps(tokenizer))
            line = self.refuses(3, "data", "tokenize", "--tokenizer", path, words, says=[says, str(path)])
            self.assertNotIn("PCRE2", line)


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
