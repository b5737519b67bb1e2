#!/usr/bin/env python3
"""`rooflm train`, `eval` and `generate` as their users see them.

Usage: test_training.py BINARY [unittest options]"""

import contextlib
import json
import math
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import unittest

from training_runs import TINY, TrainingRuns, numbers_of, words


class Train(TrainingRuns):
    def test_learns_more_than_word_frequencies(self):
        row = self.train("--steps", 150, "--batch", 8, "--warmup-steps", 10, "--eval-every", 50)
        self.assertEqual((row["status"], row["step"], row["tokens"]), ("done", 150, 150 * 8 * 16))
        self.assertLess(row["val_loss"], 0.6 * row["val_unigram_entropy"])
        log = numbers_of(self.out / "log.jsonl")
        self.assertEqual([line["step"] for line in log], list(range(1, 151)))
        self.assertEqual([line["step"] for line in log if line["val_loss"] is not None], [50, 100, 150])
        self.assertEqual(os.readlink(self.out / "latest"), "checkpoint-000150")
        names = {path.name for path in (self.out / "latest").iterdir()}
        self.assertEqual(names, {"config.json", "model.safetensors", "optimizer.safetensors", "state.json", "tokenizer.json"})

        of_eval = json.loads(self.ok("eval", "--model", self.out, "--data", self.data, "--batch", 8, "--seq", 16,
                                     "--batches", 20, "--format", "json"))[0]
        self.assertEqual(of_eval["loss"], row["val_loss"])
        out = self.ok("eval", "--model", self.out, "--data", self.data, "--batch", 8, "--seq", 16, "--batches", 3, "--dry-run")
        self.assertRegex(out, r"^would evaluate .* on 3 of \d+ batches of 8 x 16 tokens, on cpu\nwould write: nothing\n$")
        record = self.folder / "none.rooflm"
        out = self.ok("generate", "--model", self.out, "--prompt", "the cat", "--tokens", 30, "-o", record, "--dry-run")
        self.assertRegex(out, r"^would continue 1 prompts by at most 30 tokens each, with .* on cpu\nwould write\n-o: .*none.rooflm\n$")
        self.assertFalse(record.exists())
        text = self.ok("generate", "--model", self.out, "--prompt", "the cat", "--tokens", 30, "--seed", 1)
        self.assertTrue(text.startswith("the cat"))
        self.assertEqual(text, self.ok("generate", "--model", self.out, "--prompt", "the cat", "--tokens", 30, "--seed", 1))
        greedy = [self.ok("generate", "--model", self.out, "--prompt", "my", "--tokens", 20, "--temperature", 0, "--seed", s)
                  for s in (1, 2)]
        self.assertEqual(greedy[0], greedy[1])

    def test_generating_keeps_the_time_of_every_token(self):
        self.train("--steps", 2)
        record = self.out.parent / "generated.rooflm"
        generate = ["generate", "--model", self.out, "--prompt", "the", "--tokens", 5, "--ignore-eot"]
        said = self.run_rooflm(*generate, "-o", record).stderr
        self.assertRegex(said, r"5 tokens, the first after [\d.]+ \w+, then [\d.]+ tokens/s")
        tables = json.loads(self.ok("report", record, "--view", "generation", "--format", "json"))[0]["tables"]
        row = tables[0]["rows"][0]
        self.assertEqual((row["texts"], row["tokens"], row["prompt_tokens"] > 0), (1, 5, True))
        self.assertGreaterEqual(row["token_s_max"], row["token_s_median"])
        self.assertGreater(row["first_token_s"], 0)
        prefill, decode = tables[1]["rows"]
        self.assertEqual([(p["phase"], p["steps"]) for p in (prefill, decode)], [("prefill", 1), ("decode", 4)])
        for phase in (prefill, decode):
            self.assertAlmostEqual(phase["share"], phase["roof_s"] / phase["step_s"])
            self.assertAlmostEqual(phase["byte_per_s"] * phase["step_s"], phase["bytes"], delta=1)
        self.assertLess(decode["flop"], prefill["flop"])
        self.ok("verify", record)
        self.fails(3, *generate, "-o", record, says=["exists"])
        self.fails(2, *generate, "-o", "-", says=["-o"])

    def test_several_texts_at_once_are_those_of_each_alone(self):
        self.train("--steps", 2)
        prompts = ["the", "", "my, the cat"]
        generate = ["generate", "--model", self.out, "--temperature", 0, "--tokens", 30, "--ignore-eot"]
        alone = [self.ok(*generate, "--prompt", p, "--no-cache") for p in prompts]
        together = [word for p in prompts for word in ("--prompt", p)]
        self.assertEqual(self.ok(*generate, *together), "\n".join(alone))
        file = self.out.parent / "prompts.txt"
        file.write_text("\n".join(prompts) + "\n")
        record = self.out.parent / "texts.rooflm"
        rows = json.loads(self.ok(*generate, "--prompts", file, "--format", "json", "-o", record))
        self.assertEqual([row["prompt"] + row["text"] + "\n" for row in rows], alone)
        row = json.loads(self.ok("report", record, "--view", "generation", "--format", "json"))[0]["tables"][0]["rows"][0]
        self.assertEqual((row["texts"], row["tokens"]), (3, 90))
        self.assertAlmostEqual(row["tokens_per_s"] / row["text_tokens_per_s"], 3)
        self.ok("verify", record)
        self.fails(2, *generate, "--prompts", file, "--prompt", "x", says=["--prompts"])
        self.fails(3, *generate, "--prompts", "missing.txt", says=["missing.txt"])

    def test_a_stop_word_ends_a_text(self):
        self.train("--steps", 2)
        generate = ["generate", "--model", self.out, "--prompt", "the", "--temperature", 0, "--tokens", 30, "--ignore-eot"]
        whole = self.ok(*generate)
        word = whole[10:13]
        self.assertEqual(self.ok(*generate, "--stop", word), whole[: whole.index(word, 3)] + "\n")
        self.assertEqual(self.ok(*generate, "--stop", "no such word", "--stop", word), whole[: whole.index(word, 3)] + "\n")
        self.assertEqual(self.ok(*generate, "--stop", "no such word"), whole, "what was held back comes at the end")
        self.fails(2, *generate, "--stop", "", says=["--stop"])

    def test_log_probabilities_of_tokens(self):
        self.train("--steps", 2)
        generate = ["generate", "--model", self.out, "--prompt", "the", "--tokens", 6, "--ignore-eot", "--seed", 3]
        text = json.loads(self.ok(*generate, "--format", "json"))[0]["text"]
        rows = json.loads(self.ok(*generate, "--logprobs", 3, "--format", "json"))
        chosen = [row for row in rows if row["chosen"]]
        self.assertEqual([row["place"] for row in chosen], list(range(6)))
        self.assertEqual("".join(row["token"] for row in chosen), text)
        for place in range(6):
            ranked = [row for row in rows if row["place"] == place and row["rank"] is not None]
            self.assertEqual([row["rank"] for row in ranked], [1, 2, 3])
            self.assertEqual(sorted(ranked, key=lambda row: -row["logprob"]), ranked)
            self.assertLess(sum(math.exp(row["logprob"]) for row in ranked), 1 + 1e-9)
        only = json.loads(self.ok(*generate, "--logprobs", 0, "--format", "json"))
        self.assertEqual([row["id"] for row in only], [row["id"] for row in chosen])
        everything = json.loads(self.ok(*generate[:-5], "--tokens", 1, "--logprobs", 100000, "--format", "json"))
        self.assertAlmostEqual(sum(math.exp(row["logprob"]) for row in everything), 1, places=5)
        self.fails(2, *generate, "--logprobs", -1, says=["--logprobs"])

    def test_what_people_see_on_no_terminal(self):
        result = self.run_rooflm("train", "--data", self.data, "--out", self.out, *TINY, "--steps", 12,
                                 "--sample-every", 6, "--prompt", "the", "--checkpoint-every", 6)
        self.assertNotIn("\r", result.stderr)
        self.assertRegex(result.stderr, r"step 10/12  loss \d+\.\d+  lr ")
        self.assertRegex(result.stderr, r"val loss \d+\.\d+  \(unigram entropy of the validation text \d+\.\d+\)")
        self.assertIn("sample: the", result.stderr)
        self.assertIn("saved", result.stderr)
        self.assertIn("unigram entropy", result.stdout)
        quiet = self.run_rooflm("train", "--data", self.data, "--out", self.folder / "quiet", *TINY, "--steps", 2, "--quiet")
        self.assertEqual((quiet.returncode, quiet.stderr), (0, ""))
        self.assertIn("unigram entropy", quiet.stdout)

    def test_resume_needs_only_out_and_continues_bit_for_bit(self):
        common = ["--steps", 20, "--grad-accum", 2, "--eval-every", 5, "--warmup-steps", 3]
        self.train(*common)
        whole = numbers_of(self.out / "log.jsonl")
        weights = (self.out / "latest/model.safetensors").read_bytes()
        self.out = self.folder / "parts"
        process = self.start(*common, "--checkpoint-every", 7, "--keep", 10)
        self.assertEqual(process.wait(60), 0, process.stderr.read())
        process.stderr.close()
        for checkpoint in self.checkpoints()[1:]:
            for file in checkpoint.iterdir():
                file.unlink()
            checkpoint.rmdir()
        self.ok("train", "--out", self.out, "--resume", "--no-peak", "--threads", 1)
        self.assertEqual(numbers_of(self.out / "log.jsonl"), whole)
        self.assertEqual((self.out / "latest/model.safetensors").read_bytes(), weights)

    def test_fp8_continues_with_its_scales(self):
        common = ["--steps", 8, "--dtype", "fp8", "--fp8-gradients", "e5m2", "--warmup-steps", 2, "--eval-every", 4]
        row = self.train(*common)
        whole = numbers_of(self.out / "log.jsonl")
        self.assertIn(b"fp8_scales", (self.out / "latest/optimizer.safetensors").read_bytes()[:100_000])
        of_eval = json.loads(self.ok("eval", "--model", self.out, "--data", self.data, "--batch", 2, "--seq", 16,
                                     "--batches", 20, "--dtype", "fp8", "--format", "json"))[0]
        self.assertEqual((of_eval["dtype"], of_eval["loss"]), ("fp8", row["val_loss"]))
        bf16 = json.loads(self.ok("eval", "--model", self.out, "--data", self.data, "--batch", 2, "--seq", 16,
                                  "--batches", 20, "--dtype", "bf16", "--format", "json"))[0]
        self.assertNotEqual(of_eval["loss"], bf16["loss"])
        self.assertAlmostEqual(of_eval["loss"], bf16["loss"], delta=0.02 * bf16["loss"])
        self.out = self.folder / "parts"
        self.train(*common, "--checkpoint-every", 5, "--keep", 10)
        for file in (self.out / "checkpoint-000008").iterdir():
            file.unlink()
        (self.out / "checkpoint-000008").rmdir()
        self.fails(2, "train", "--out", self.out, "--resume", "--no-peak", "--fp8-gradients", "e4m3",
                   says=["--fp8-gradients", "contradicts"])
        self.ok("train", "--out", self.out, "--resume", "--no-peak", "--threads", 1)
        self.assertEqual(numbers_of(self.out / "log.jsonl"), whole)

    def test_sigterm_and_sigint_save_and_exit_with_128_and_the_signal(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.out = self.folder / f"out{int(number)}"
            record = self.folder / f"{number.name}.rooflm"
            process = self.start("--steps", 1_000_000, "-o", record)
            log = self.out / "log.jsonl"
            for _ in range(600):
                if log.exists() and log.stat().st_size > 1000:
                    break
                time.sleep(0.05)
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 128 + number, errors)
            self.assertIn("stopped by " + number.name, errors)
            state = json.loads((self.out / "latest/state.json").read_text())
            self.assertEqual(numbers_of(log)[-1]["step"], state["step"])
            row = self.ok("eval", "--model", self.out, "--data", self.data, "--batch", 1, "--seq", 16, "--batches", 1)
            self.assertIn("perplexity", row)
            with contextlib.closing(sqlite3.connect(record)) as db:
                self.assertEqual(db.execute("SELECT status FROM run").fetchall(), [("interrupted",)])

    def test_a_record_of_every_step(self):
        record = self.folder / "train.rooflm"
        row = self.train("--steps", 12, "--eval-every", 6, "--grad-accum", 2, "-o", record)
        log = [json.loads(line) for line in (self.out / "log.jsonl").read_text().splitlines()]
        with contextlib.closing(sqlite3.connect(record)) as db:
            (kind, status), = db.execute("SELECT kind, status FROM run")
            self.assertEqual((kind, status), ("train", "success"))
            config = dict(db.execute("SELECT key, value FROM config"))
            self.assertEqual((config["batch"], config["seq"], config["grad_accum"], config["clip"]), (2, 16, 2, 1))
            steps = dict(db.execute("SELECT step, seconds FROM sample WHERE phase = 'step'"))
            self.assertEqual(steps, {line["step"]: line["step_s"] for line in log})
            losses = dict(db.execute("SELECT row, value FROM cell WHERE series = 'training' AND col = 'loss'"))
            self.assertEqual(losses, {line["step"]: line["loss"] for line in log})
            evaluated = [at for at, in db.execute("SELECT row FROM cell WHERE col = 'val_loss' ORDER BY row")]
            self.assertEqual(evaluated, [6, 12])
            facts = dict(db.execute("SELECT key, value FROM fact"))
            self.assertEqual((facts["trained_steps"], facts["tokens"], facts["loss"]), (12, 64, row["loss"]))
            self.assertLess(facts["loader_wait_s"], facts["train_s"] / 12)
        law = self.run_rooflm("verify", record)
        self.assertEqual(law.returncode, 0, law.stdout)
        views = {view["name"]: view for view in json.loads(self.ok("report", record, "--format", "json", "--view",
                                                                   "training,overview,phases,bench,cells"))}
        self.assertEqual(views["training"]["tables"][0]["rows"], [row])
        self.assertEqual([series["name"] for series in views["training"]["charts"][0]["series"]],
                         ["training", "validation"])
        self.assertEqual(views["cells"]["tables"], [])
        self.assertEqual(views["bench"]["tables"][0]["rows"][0]["steps"], 12)
        self.ok("compare", record, record)
        self.fails(3, "train", "--data", self.data, "--out", self.folder / "other", *TINY, "--steps", 1, "-o", record,
                   says=["train.rooflm"])
        self.assertFalse((self.folder / "other/latest").exists())

    def test_a_resumed_run_has_its_own_record(self):
        self.train("--steps", 3, "--schedule", "constant")
        record = self.folder / "train.rooflm"
        self.ok("train", "--out", self.out, "--resume", "--no-peak", "--threads", 1, "--steps", 5, "-o", record)
        with contextlib.closing(sqlite3.connect(record)) as db:
            self.assertEqual([step for step, in db.execute("SELECT step FROM sample WHERE phase = 'step'")], [4, 5])
            self.assertEqual(dict(db.execute("SELECT key, value FROM config"))["batch"], 2)

    def test_contradictions_are_refused(self):
        self.train("--steps", 4)
        again = ["train", "--out", self.out, "--no-peak"]
        self.fails(2, *again, "--data", self.data, "--steps", 4, says=["checkpoint-000004", "--resume"])
        again.append("--resume")
        for option, value in (("--lr", "0.5"), ("--batch", "3"), ("--grad-accum", "2"), ("--dtype", "bf16"),
                              ("--engine", "eager"), ("--seed", "9"), ("--layers", "2"), ("--steps", "9"),
                              ("--schedule", "linear"), ("--beta2", "0.5"), ("--vocab", "301")):
            self.fails(2, *again, option, value, says=[option, "contradicts"])
        self.ok(*again, "--steps", "4", "--layers", "1", "--keep", "5")

    def test_numbers_that_are_not_finite_end_the_run(self):
        self.train("--steps", 2, "--schedule", "constant", "--optimizer", "sgd", "--lr", "1e-3")
        before = (self.out / "latest/model.safetensors").read_bytes()
        self.out2 = self.folder / "out2"
        self.fails(1, "train", "--data", self.data, "--out", self.out2, "--model", self.out, "--batch", 2, "--seq", 16,
                   "--no-peak", "--optimizer", "sgd", "--clip", "0", "--schedule", "constant", "--lr", "1e38",
                   "--steps", 50, says=["step ", "checkpoint"])
        self.assertEqual((self.out / "latest/model.safetensors").read_bytes(), before)
        self.assertFalse((self.out2 / "latest").exists())

    def test_data_of_another_tokenizer_is_refused(self):
        self.train("--steps", 2, "--schedule", "constant")
        texts = self.folder / "texts"
        texts.mkdir()
        for i in range(10):
            (texts / f"{i}.txt").write_text(words(60, 100 + i).upper())
        other = self.folder / "other"
        self.ok("data", "prepare", texts, "-o", other, "--vocab", 300, "--val-fraction", "0.2")
        says = ["was prepared by another tokenizer than", str(other / "tokenizer.json"), "checkpoint-000002/tokenizer.json"]
        small = ["--batch", 1, "--seq", 16]
        self.fails(2, "eval", "--model", self.out, "--data", other, *small, says=says)
        self.fails(2, "eval", "--model", self.out, "--data", *other.glob("val_*.bin"), *small, says=says)
        train = ["train", "--out", self.folder / "out2", "--model", self.out, *small, "--no-peak", "--steps", 3]
        self.fails(2, *train, "--data", other, says=says)
        self.fails(2, *train, "--data", self.data, "--val-data", *other.glob("val_*.bin"), says=says)
        self.fails(2, "train", "--out", self.out, "--resume", "--no-peak", "--steps", 3, "--data", other, says=says)
        self.assertFalse((self.folder / "out2").exists())
        # The same tokenizer in another format, and no tokenizer, are data as good as any.
        alike = self.folder / "alike"
        shutil.copytree(self.data, alike)
        file = alike / "tokenizer.json"
        file.write_text(json.dumps(json.loads(file.read_text()), indent=3))
        self.ok("eval", "--model", self.out, "--data", alike, *small, "--batches", 1)
        (self.out / "latest/tokenizer.json").unlink()
        self.ok("eval", "--model", self.out, "--data", other, *small, "--batches", 1)

    def test_a_second_signal_at_once_is_the_same_request(self):
        process = self.start("--steps", 1_000_000)
        log = self.out / "log.jsonl"
        for _ in range(600):
            if log.exists() and log.stat().st_size > 1000:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)  # as `timeout -s INT` does: to its child, then to the group
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        self.assertIn(process.returncode, (130, 143), errors)  # the kernel delivers the lower number first
        self.assertIn("stopped by SIG", errors)
        state = json.loads((self.out / "latest/state.json").read_text())
        self.assertEqual(numbers_of(log)[-1]["step"], state["step"])

    def test_nothing_to_resume(self):
        nope = self.folder / "nope"
        self.fails(2, "train", "--out", nope, "--resume", says=["--resume", f"no checkpoint in {nope}", "--steps"])
        nope.mkdir()
        self.fails(2, "train", "--out", nope, "--resume", says=[f"no checkpoint in {nope}"])

    def test_bad_options(self):
        base = ["train", "--data", self.data, "--out", self.out, *TINY]
        self.fails(2, *base, says=["--steps is missing"])
        self.fails(2, "train", "--data", self.data, *TINY, "--steps", 1, says=["--out is missing"])
        self.fails(2, "train", "--out", self.out, *TINY, "--steps", 1, says=["--data is missing"])
        for option, value, code in (("--steps", "0", 2), ("--steps", "x", 2), ("--lr", "-1", 2), ("--lr", "nan", 2),
                                    ("--min-lr", "5", 2), ("--keep", "0", 2), ("--warmup-steps", "9", 2),
                                    ("--beta1", "1", 2), ("--eps", "0", 2), ("--eps", "1e-50", 2), ("--clip", "-1", 2), ("--eval-batches", "0", 2),
                                    ("--vocab", "100", 2), ("--memory-limit", "100kB", 4)):
            self.fails(code, *base, "--steps", 5, option, value)
        self.fails(2, *base, "--steps", 5, "--schedule", "cosin", says=["did you mean 'cosine'"])
        self.fails(2, *base, "--steps", 5, "--optimizer", "adam", says=["did you mean 'adamw'"])
        self.fails(3, "train", "--data", "nowhere", "--out", self.out, *TINY, "--steps", 5, says=["nowhere"])

    def test_damaged_checkpoints_are_named(self):
        self.train("--steps", 3)
        for name in ("config.json", "model.safetensors", "optimizer.safetensors", "state.json"):
            path = self.out / "latest" / name
            whole = path.read_bytes()
            path.write_bytes(whole[: len(whole) // 2])
            self.fails(3, "train", "--out", self.out, "--resume", "--no-peak", says=[name])
            self.assertEqual(path.read_bytes(), whole[: len(whole) // 2])
            path.write_bytes(whole)

    @unittest.skipIf(os.geteuid() == 0, "the superuser may write anywhere")
    def test_a_directory_without_write_permission(self):
        self.out.mkdir(mode=0o500)
        self.fails(3, "train", "--data", self.data, "--out", self.out, *TINY, "--steps", 1, says=["out"])

    @unittest.skipIf(os.environ.get("ROOFLM_SANITIZER") == "thread", "the OpenMP runtime that the thread sanitizer needs dies of the limit")
    def test_a_full_disk_loses_nothing(self):
        import resource

        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

        self.train("--steps", 2, "--schedule", "constant")
        before = sorted(path.name for path in self.out.iterdir())
        self.fails(3, "train", "--out", self.out, "--resume", "--no-peak", "--steps", 4, says=["cannot write"],
                   preexec_fn=small_files)
        self.assertEqual(sorted(path.name for path in self.out.iterdir()), before)
        self.ok("train", "--out", self.out, "--resume", "--no-peak", "--steps", 4)


class EvalAndGenerate(TrainingRuns):
    def test_a_stopped_generation_keeps_the_tokens_it_timed(self):
        self.train("--steps", 1)
        record = self.folder / "stopped.rooflm"
        for prompts in (["--prompt", "the"], ["--prompt", "the", "--prompt", "my"]):
            process = subprocess.Popen([self.binary, "generate", "--model", str(self.out), *prompts, "--ignore-eot", "--window", "32",
                                        "--tokens", "100000000", "-o", str(record), "--overwrite"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if len(prompts) == 2:
                process.stdout.read(200)  # tokens are being made
            else:
                time.sleep(2)
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, errors)
            self.assertIn(b"stopped by SIGINT", errors)
            self.assertTrue(out.endswith(b"\n"))
            self.assertEqual([path.name for path in self.folder.glob("stopped.rooflm*")], [record.name])
            with contextlib.closing(sqlite3.connect(record)) as db:
                self.assertEqual(db.execute("SELECT status FROM run").fetchall(), [("interrupted",)])
                self.assertGreater(db.execute("SELECT COUNT(*) FROM sample").fetchone()[0], 2)
            self.ok("verify", record)
            self.ok("report", record, "--view", "generation")

    def test_bad_options(self):
        self.fails(2, "eval", "--data", self.data, says=["--model is missing"])
        self.fails(2, "eval", "--model", "gpt2", "--data", self.data, says=["no weights"])
        self.fails(2, "eval", "--model", "gtp2", "--data", self.data, says=["did you mean 'gpt2'"])
        self.fails(2, "generate", "--prompt", "x", says=["--model is missing"])
        self.train("--steps", 1)
        self.fails(2, "eval", "--model", self.out, says=["--data is missing"])
        self.fails(3, "eval", "--model", self.out, "--data", "missing.bin", says=["missing.bin"])
        self.fails(3, "eval", "--model", self.out, "--data", self.data / "meta.json", says=["meta.json"])
        for option, value in (("--tokens", "0"), ("--temperature", "-1"), ("--top-p", "0"), ("--top-p", "2"),
                              ("--top-k", "-1"), ("--seed", "x")):
            self.fails(2, "generate", "--model", self.out, "--prompt", "x", option, value, says=[option])
        (self.out / "latest/tokenizer.json").unlink()
        self.fails(3, "generate", "--model", self.out, "--prompt", "x", says=["tokenizer"])

    def test_formats_and_windows(self):
        self.train("--steps", 2)
        tokens = 0
        for path in self.data.glob("val_*.bin"):
            tokens += (path.stat().st_size - 1024) // 2
        row = json.loads(self.ok("eval", "--model", self.out, "--data", *self.data.glob("val_*.bin"), "--batch", 3,
                                 "--seq", 10, "--format", "json"))[0]
        self.assertEqual(row["batches"], (tokens - 1) // 30)
        self.assertEqual(row["tokens"], row["batches"] * 30)
        table = self.ok("eval", "--model", self.out, "--data", self.data, "--format", "csv").splitlines()
        self.assertIn("loss,perplexity,tokens,batches", table[0])
        eager = json.loads(self.ok("eval", "--model", self.out, "--data", self.data, "--batch", 3, "--seq", 10,
                                   "--engine", "eager", "--format", "json"))[0]
        self.assertAlmostEqual(eager["loss"], row["loss"], places=4)


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
