#!/usr/bin/env python3
"""Files of a training run that others change, share or damage.

Usage: test_training_files.py BINARY [unittest options]"""

import contextlib
import os
import pathlib
import pty
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import unittest

from training_runs import TINY, TrainingRuns, numbers_of


class TrainingFiles(TrainingRuns):
    def wait_for_step(self, log):
        deadline = time.monotonic() + 60
        while not (log.exists() and log.read_text().count("\n") > 1):
            self.assertLess(time.monotonic(), deadline, "no step was logged")
            time.sleep(0.02)

    def end(self, process):
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, errors)

    def test_data_that_go_or_change_leave_the_tokenizer_of_the_run(self):
        tokenizer = (self.data / "tokenizer.json").read_bytes()
        for change in ("gone", "prepared again"):
            with self.subTest(change=change):
                self.out = self.folder / change
                data = self.folder / f"data of {change}"
                shutil.copytree(type(self).data, data)
                self.data = data
                process = self.start("--steps", 1_000_000)
                self.wait_for_step(self.out / "log.jsonl")
                if change == "gone":
                    shutil.rmtree(data)
                else:
                    (data / "tokenizer.json").write_text("another")
                self.end(process)
                self.assertEqual((self.out / "latest" / "tokenizer.json").read_bytes(), tokenizer)

    def test_a_killed_run_leaves_its_steps_in_the_record(self):
        record = self.folder / "killed.rooflm"
        process = self.start("--steps", 1_000_000, "--line-every", 1, "-o", record)
        for line in process.stderr:
            if line.startswith("step 2/"):
                break
        process.kill()
        process.wait(60)
        process.stderr.close()
        with contextlib.closing(sqlite3.connect(record)) as database:
            steps, = database.execute("SELECT COUNT(*) FROM sample WHERE phase = 'step'").fetchone()
        self.assertGreaterEqual(steps, 1)
        shown = self.ok("report", record)
        self.assertIn("is partial", shown)
        self.assertNotIn("Nothing to show", shown)

    def test_resuming_says_what_was_lost(self):
        self.train("--steps", 4, "--checkpoint-every", 2, "--keep", 2, "--schedule", "constant")
        resume = ["train", "--data", self.data, "--out", self.out, *TINY, "--resume"]
        shutil.rmtree(self.out / "checkpoint-000004")
        said = self.run_rooflm(*resume, "--steps", 4).stderr
        self.assertIn("points to checkpoint-000004, which is missing: that checkpoint is lost", said)
        self.assertIn("2 steps after it, up to step 4, are not in it and are trained again", said)
        said = self.run_rooflm(*resume, "--steps", 4).stderr
        self.assertNotIn("lost", said)
        self.assertNotIn("trained again", said)
        (self.out / "latest").unlink()
        (self.out / "latest").write_text("damaged")
        self.assertIn("latest is not a link to a checkpoint", self.run_rooflm(*resume, "--steps", 4).stderr)
        self.assertTrue((self.out / "latest").is_symlink())

    def in_terminal(self, *arguments):
        """All that a terminal gets, from both streams."""
        leader, follower = pty.openpty()
        process = subprocess.Popen([self.binary, *map(str, arguments)], stdout=follower, stderr=follower)
        os.close(follower)
        out = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(leader, 65536):
                out += part
        os.close(leader)
        self.assertEqual(process.wait(60), 0, out)
        return out

    def test_texts_of_files_do_not_rule_the_terminal(self):
        self.train("--steps", 1)
        prompts = self.folder / "prompts.txt"
        hostile = b"\x1b[2J\x1b]0;title\x07 \xc2\x9b31m\x7f"
        for lines in (hostile + b"\n", hostile + b"\n" + hostile + b"\n"):
            prompts.write_bytes(lines)
            words = ["generate", "--model", self.out, "--prompts", prompts, "--tokens", 1]
            for form in ([], ["--format", "csv"], ["--format", "json"]):
                with self.subTest(lines=len(lines), form=form):
                    shown = self.in_terminal(*words, *form)
                    for sequence in (b"\x1b[2J", b"\x1b]", b"\x07", b"\xc2\x9b", b"\x7f"):
                        self.assertNotIn(sequence, shown)
                    self.assertIn(b"title", shown)
            self.assertIn(hostile.decode(), self.ok(*words), "a pipe gets it as it is")

    def test_a_tokenizer_of_another_model_is_named(self):
        self.train("--steps", 1)
        tokenizer = self.folder / "larger.json"
        words = self.folder / "words.txt"
        chance = random.Random(1)
        words.write_text(" ".join("".join(chance.choices("abcdefgh", k=6)) for _ in range(4000)))
        self.ok("data", "train-tokenizer", words, "-o", tokenizer, "--vocab", 3000)
        self.fails(3, "generate", "--model", self.out, "--tokenizer", tokenizer, "--prompt", words.read_text()[:2000], "--tokens", 1,
                   says=[str(tokenizer), "outside the vocabulary of", str(self.out)])

    def test_a_log_is_of_one_run(self):
        log = self.folder / "shared.log"
        process = self.start("--steps", 1_000_000, "--log", log, "--schedule", "constant")
        self.wait_for_step(log)
        base = ["train", "--data", self.data, *TINY, "--schedule", "constant", "--log", log]
        other = self.folder / "other"
        self.fails(2, *base, "--out", other, "--steps", 3, "--resume", says=["shared.log", "no checkpoint in"])
        self.fails(2, *base, "--out", other, "--steps", 3, says=["shared.log exists already"])
        self.ok("train", "--data", self.data, *TINY, "--schedule", "constant", "--out", other, "--steps", 3)
        self.fails(2, *base, "--out", other, "--steps", 5, "--resume", says=["another training run is writing to", "choose another --log"])
        self.end(process)
        steps = [line["step"] for line in numbers_of(log)]
        self.assertGreater(len(steps), 1)
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        lines = log.read_text()
        self.fails(2, *base, "--out", self.folder / "third", "--steps", 3, "--resume", says=["choose another --log"])
        self.assertEqual(log.read_text(), lines)

    def test_a_log_may_go_to_a_device(self):
        base = ["train", "--data", self.data, *TINY, "--steps", 2]
        self.ok(*base, "--out", self.folder / "null", "--log", "/dev/null")
        self.ok(*base, "--out", self.folder / "null", "--log", "/dev/null", "--resume")
        self.assertIn('{"step":2,', self.ok(*base, "--out", self.folder / "stdout", "--log", "/dev/stdout"))
        self.fails(3, *base, "--out", self.folder / "folder", "--log", self.folder, says=["Is a directory"])

    def test_damaged_models_are_named(self):
        """Where there are checksums: not only by what resumes."""
        self.train("--steps", 2)
        small = ["--batch", 1, "--seq", 16]
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            path = self.out / "latest" / name
            whole = path.read_bytes()
            if name == "model.safetensors":
                path.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
            elif name == "config.json":
                path.write_bytes(whole.replace(b"1e-05", b"2e-05"))
            else:
                path.write_bytes(whole + b"\n")
            self.assertNotEqual(path.read_bytes(), whole)
            for i, words in enumerate((["eval", "--model", self.out, "--data", self.data, *small, "--batches", 1],
                                       ["generate", "--model", self.out, "--tokens", 1],
                                       ["train", *TINY, "--data", self.data, "--model", self.out, "--out", self.folder / "more", "--steps", 1])):
                with self.subTest(file=name, command=words[0]):
                    self.fails(3, *words, says=[name, "is damaged or was changed"])
            path.write_bytes(whole)
        self.ok("eval", "--model", self.out, "--data", self.data, *small, "--batches", 1)


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
