#!/usr/bin/env python3
"""Files that a command reads and writes: outputs that are inputs, files that exist, inputs that are no regular
files, closed descriptors, limits of sizes, signals, what is left behind.

Usage: test_files.py BINARY [unittest options]"""

import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import unittest

from training_runs import TINY, TrainingRuns, numbers_of, words

SMALL = ["--model", "tiny", "--layers", "1", "--d-model", "32", "--heads", "2", "--d-ff", "64", "--vocab", "256",
         "--batch", "1", "--seq", "16", "--threads", "1"]


def listens(pid, number):
    """Whether a process has a handler for a signal."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    caught = int(re.search(r"SigCgt:\s*(\w+)", status).group(1), 16)
    return bool(caught >> (number - 1) & 1)


class Files(TrainingRuns):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shared_record = pathlib.Path(cls.shared.name) / "a.rooflm"
        subprocess.run([cls.binary, "bench", *SMALL, "--steps", "1", "--no-peak", "-o", str(cls.shared_record)], check=True,
                       capture_output=True)

    def setUp(self):
        super().setUp()
        self.record = self.folder / "a.rooflm"
        shutil.copy(self.shared_record, self.record)
        self.book = self.folder / "book.txt"
        self.book.write_text(words(300, 1))

    def names(self, folder=None):
        return sorted(path.name for path in (folder or self.folder).iterdir())

    def stays(self, path, code, *arguments, says=()):
        """The command fails and `path` is as it was."""
        before, names = path.read_bytes(), self.names()
        self.fails(code, *arguments, says=says)
        self.assertEqual(path.read_bytes(), before)
        self.assertEqual(self.names(), names, "something was left behind")

    # Outputs

    def test_an_output_is_never_an_input(self):
        link, hard = self.folder / "link", self.folder / "hard"
        link.symlink_to(self.book)
        os.link(self.book, hard)
        (self.folder / "sub").mkdir()
        for output in (self.book, link, hard, self.folder / "sub/../book.txt"):
            for overwrite in ([], ["--overwrite"]):
                self.stays(self.book, 2, "data", "train-tokenizer", self.book, "-o", output, *overwrite, says=[str(output)])
        study = self.folder / "mine.toml"
        study.write_text('title = "t"\nquestion = "q"\nviews = ["sweep"]\n')
        model = self.folder / "model.json"
        model.write_text('{"arch": "llama", "layers": 1, "heads": 2, "d_model": 32, "d_ff": 64, "vocab": 256}')
        page = self.run_rooflm("report", self.record, "--html", self.folder / "page.html").returncode == 0
        for path, *command in ((self.record, "report", self.record, "--html"), (model, "profile", "--model", model, "--html"),
                               (study, "study", study, "--html")):
            if page:
                self.stays(path, 2, *command, path, "--overwrite", says=[path.name])
        self.stays(model, 2, "bench", "--model", model, "-o", model, "--overwrite", says=[model.name])
        for path in (model, study):
            self.stays(path, 2, "study", study, "--model", model, "-o", path, "--overwrite", says=[path.name])

    def test_training_does_not_write_over_what_it_reads(self):
        shard = self.folder / "train_000000.bin"
        shutil.copy(self.data / "train_000000.bin", shard)
        base = ["train", "--data", shard, "--out", self.out, *TINY, "--vocab", 300, "--steps", 1]
        for option in ("-o", "--log"):
            self.stays(shard, 2, *base, option, shard, "--overwrite", says=["train_000000.bin"])

    def test_preparing_does_not_write_over_what_it_reads(self):
        data = self.folder / "data"
        self.ok("data", "prepare", self.book, "-o", data, "--vocab", 300)
        for name in ("tokenizer.json", "meta.json"):
            self.stays(data / name, 2, "data", "prepare", self.book, data / name, "-o", data, "--overwrite", says=[name])
        self.stays(data / "tokenizer.json", 2, "data", "prepare", self.book, "--tokenizer", data, "-o", data, "--overwrite",
                   says=["tokenizer.json"])
        self.ok("data", "prepare", self.book, "-o", data, "--overwrite", "--vocab", 290)

    def test_what_exists_is_replaced_only_when_asked(self):
        letter = self.folder / "letter"
        letter.write_text("dear")
        commands = [["data", "train-tokenizer", self.book, "--vocab", 300, "-o"], ["bench", *SMALL, "--steps", "1", "-o"],
                    ["gemm", "--size", "8", "-o"], ["attention", "--seq", "8", "-o"], ["peaks", "-o"],
                    ["profile", *SMALL, "-o"], ["study", "formats", "-o"],
                    ["train", "--data", self.data, "--out", self.out, *TINY, "--steps", 1, "-o"]]
        if self.run_rooflm("report", self.record, "--html", self.folder / "page.html").returncode == 0:
            commands += [["report", self.record, "--html"], ["profile", *SMALL, "--html"], ["study", "formats", "--html"]]
            (self.folder / "page.html").unlink()
        for command in commands:
            self.stays(letter, 3, *command, letter, says=["letter", "--overwrite"])
        self.ok("data", "train-tokenizer", self.book, "--vocab", 300, "-o", letter, "--overwrite")
        self.assertEqual(json.loads(letter.read_text())["model"]["type"], "BPE")

    def test_charts_are_replaced_only_when_asked(self):
        charts = self.folder / "charts"
        show = ["report", self.record, "--view", "phases", "--format", "md", "--charts", charts]
        self.ok(*show)
        first = sorted(charts.iterdir())[0]
        first.write_text("mine")
        self.fails(3, *show, says=[first.name, "--overwrite"])
        self.assertEqual(first.read_text(), "mine")
        self.ok(*show, "--overwrite")
        self.assertIn("<svg", first.read_text())
        as_record = charts / first.name
        shutil.copy(self.record, as_record)
        before = as_record.read_bytes()
        self.fails(2, "report", as_record, "--view", "phases", "--charts", charts, "--overwrite", says=[first.name])
        self.assertEqual(as_record.read_bytes(), before)

    def test_outputs_are_files_in_folders_that_are_there(self):
        for path, says in ((self.folder / "no/t.json", "no folder"), (self.folder, "directory"), ("/dev/null", "not a regular file")):
            self.fails(3, "data", "train-tokenizer", self.book, "-o", path, "--overwrite", says=[str(path), says])
        self.assertTrue(pathlib.Path("/dev/null").is_char_device())
        both = self.folder / "both"
        if self.run_rooflm("report", self.record, "--html", self.folder / "page.html").returncode == 0:
            self.fails(2, "profile", *SMALL, "-o", both, "--html", both, says=["same file"])
        self.assertFalse(both.exists())

    # Inputs

    def feed(self, path, text):
        def write():
            with open(path, "w") as pipe:
                pipe.write(text)
        thread = threading.Thread(target=write)
        thread.start()
        return thread

    def test_text_comes_through_pipes(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        tokenizers = [self.folder / f"{i}.json" for i in range(4)]
        learn = ["data", "train-tokenizer", "--vocab", 300, "-o"]
        self.ok(*learn, tokenizers[0], self.book)
        thread = self.feed(fifo, self.book.read_text())
        self.ok(*learn, tokenizers[1], fifo)
        thread.join()
        for path, name in ((tokenizers[2], "/dev/stdin"), (tokenizers[3], "-")):
            result = self.run_rooflm(*learn, path, name, input=self.book.read_text())
            self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len({path.read_bytes() for path in tokenizers}), 1)
        for name in ("-", "/dev/stdin"):
            data = self.folder / f"data{len(name)}"
            result = self.run_rooflm("data", "prepare", name, "-o", data, "--vocab", 300, input=self.book.read_text())
            self.assertEqual(result.returncode, 0, result.stderr)
            self.ok("data", "prepare", self.book, "-o", self.folder / "data", "--vocab", 300, "--overwrite")
            for part in ("train_000000.bin", "val_000000.bin", "tokenizer.json"):
                self.assertEqual((data / part).read_bytes(), (self.folder / "data" / part).read_bytes())
        expected = self.ok("data", "tokenize", "--tokenizer", tokenizers[0], self.book)
        piped = self.run_rooflm("data", "tokenize", "--tokenizer", tokenizers[0], "/dev/stdin", input=self.book.read_text())
        self.assertEqual(piped.stdout, expected)
        empty = self.run_rooflm("data", "tokenize", "--tokenizer", tokenizers[0], "/dev/stdin", input="")
        self.assertEqual((empty.returncode, empty.stdout), (0, "\n"))

    def test_what_is_mapped_must_be_a_regular_file(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        model = self.folder / "model"
        self.train("--steps", 1)
        shutil.copytree((self.out / "latest").resolve(), model)
        for path in (fifo, "/dev/zero", self.folder):
            self.fails(3, "data", "info", path, says=[str(path)])
            self.fails(3, "eval", "--model", model, "--data", f"{path},{path}", says=[str(path)])
            self.fails(3, "report", path, says=[str(path)])
        (model / "model.safetensors").unlink()
        os.mkfifo(model / "model.safetensors")
        self.fails(3, "eval", "--model", model, "--data", self.data, "--batch", 1, "--seq", 8, says=["pipe"])
        self.fails(3, "program", "--model", fifo, says=["pipe"])

    def test_reading_ends(self):
        endless = self.folder / "endless.toml"
        endless.symlink_to("/dev/zero")
        self.fails(3, "study", endless, says=["endless.toml", "device"])
        self.fails(3, "study", "/dev/zero", says=["/dev/zero"])
        large = self.folder / "large.toml"
        with open(large, "wb") as file:
            file.truncate(1 << 30)
        self.fails(3, "study", large, says=["large.toml", "more than"])
        for path in ("/dev/zero", "/dev/urandom"):
            self.fails(3, "data", "train-tokenizer", path, "-o", self.folder / "t.json", says=[path, "device"])
            self.fails(3, "data", "prepare", path, "-o", self.folder / "data", says=[path, "device"])
        self.assertFalse((self.folder / "data").exists())

    def test_a_pipe_without_a_writer_is_not_waited_for(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        self.fails(3, "data", "train-tokenizer", fifo, "-o", self.folder / "t.json", says=["nobody has written"])

    def test_a_shard_that_becomes_shorter_is_an_error(self):
        data = self.folder / "data"
        shutil.copytree(self.data, data)
        process = subprocess.Popen([self.binary, "train", "--data", str(data), "--out", str(self.out), *TINY, "--steps",
                                    "1000000", "--eval-every", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.wait_for(lambda: (self.out / "log.jsonl").exists() and (self.out / "log.jsonl").stat().st_size > 1000)
        os.truncate(data / "train_000000.bin", 1100)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 3, errors)
        self.assertIn("train_000000.bin", errors)
        self.assertIn("truncated", errors)

    # The process

    def run_closed(self, closed, *arguments):
        script = "exec \"$@\" " + " ".join(f"{fd}{'<' if fd == 0 else '>'}&-" for fd in closed)
        return subprocess.run(["sh", "-c", script, "sh", self.binary, *map(str, arguments)], timeout=300).returncode

    def test_closed_descriptors_get_no_progress(self):
        self.train("--steps", 3)
        expected = numbers_of(self.out / "log.jsonl")
        for closed in ((0, 1, 2), (1, 2), (2,), (1,)):
            out = self.folder / f"out{closed}"
            code = self.run_closed(closed, "train", "--data", self.data, "--out", out, *TINY, "--steps", 3)
            self.assertEqual(code, 0)
            self.assertEqual(numbers_of(out / "log.jsonl"), expected)
            self.assertEqual((out / ".lock").read_bytes(), b"")
        self.assertEqual(self.run_closed((0,), "data", "train-tokenizer", "-", "-o", self.folder / "t.json"), 3)

    def limited(self, most, *arguments):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        return self.run_rooflm(*arguments, preexec_fn=limit)

    @unittest.skipIf(os.environ.get("ROOFLM_SANITIZER") == "thread", "the OpenMP runtime that the thread sanitizer needs dies of the limit")
    def test_the_limit_of_a_file_is_an_error(self):
        page = self.folder / "page.html"
        for path, *command in ((self.folder / "t.json", "data", "train-tokenizer", self.book, "-o"),
                               (self.folder / "b.rooflm", "bench", *SMALL, "--steps", "1", "--no-peak", "-o"),
                               (self.folder / "data", "data", "prepare", self.book, "-o"), (page, "report", self.record, "--html")):
            names = self.names()
            result = self.limited(2000, *command, path)
            if path == page and result.returncode == 5:
                continue
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertRegex(result.stderr, f"cannot write .*{path.name}.*(File too large|disk I/O error)")  # SQLite's words
            self.assertEqual(self.names(), names)
        result = self.limited(4000, "train", "--data", self.data, "--out", self.out, *TINY, "--steps", 1)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertEqual(self.names(self.out), [".lock", "log.jsonl"])

    def test_a_folder_for_temporary_files_that_is_not_there(self):
        nowhere = str(self.folder / "nowhere")
        self.fails(3, "bench", "--model", "tiny", "--layers", 1, "--batch", 1, "--seq", 8, "--no-peak", "--steps", 1, env={**os.environ, "TMPDIR": nowhere}, says=["TMPDIR", nowhere])

    # Training

    def test_only_unfinished_files_of_ours_are_removed(self):
        self.train("--steps", 2, "--schedule", "constant")
        mine = ["checkpoint-mine.tmp", "latest-notes.tmp", "checkpoint-12.tmp", "checkpoint-000001.tmp.tmp", "latest.tmp.old"]
        for name in mine:
            (self.out / name).mkdir()
            (self.out / name / "notes.txt").write_text("mine")
        (self.out / "checkpoint-000001.tmp").write_text("a file, so not ours")
        (self.out / "checkpoint-000009.tmp").mkdir()
        (self.out / "latest.tmp").symlink_to("checkpoint-000009")
        self.ok("train", "--out", self.out, "--resume", "--no-peak", "--threads", 1, "--steps", 4)
        for name in mine:
            self.assertEqual((self.out / name / "notes.txt").read_text(), "mine")
        self.assertTrue((self.out / "checkpoint-000001.tmp").is_file())
        self.assertFalse((self.out / "checkpoint-000009.tmp").exists())
        self.assertFalse((self.out / "latest.tmp").is_symlink())

    def test_training_checks_before_it_measures(self):
        base = ["train", *TINY, "--steps", 5]
        base.remove("--no-peak")
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}
        blocked = self.folder / "blocked"
        blocked.write_text("a file")
        short = self.folder / "short.bin"
        short.write_bytes((self.data / "train_000000.bin").read_bytes()[:2000])
        record = self.folder / "r.rooflm"
        for code, more in ((3, ["--data", self.data, "--out", blocked]), (3, ["--data", short, "--out", self.out]),
                           (3, ["--data", self.folder / "none", "--out", self.out]),
                           (2, ["--data", self.data, "--out", self.out, "--vocab", 100]),
                           (3, ["--data", self.data, "--out", self.out, "-o", blocked, "--overwrite"])):
            result = self.run_rooflm(*base, *more, *(["-o", record] if "-o" not in more else []), env=environment)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertNotIn("peak", result.stderr)
            self.assertFalse((self.folder / "cache").exists(), f"{more}: the peak was measured first")
            self.assertFalse(self.out.exists(), more)
            self.assertFalse(record.exists(), more)

    def test_paths_that_are_no_utf8_resume(self):
        place = self.folder / os.fsdecode(b"gr\xf6\xdfe-\xff")
        try:
            shutil.copytree(self.data, place / "data")
        except OSError as error:
            self.skipTest(f"this file system takes no such names: {error}")
        shard = place / "data" / os.fsdecode(b"\xfe.bin")
        shutil.copy(self.data / "train_000000.bin", shard)
        for data, more in ((place / "data", []), (shard, ["--vocab", 300])):
            out = place / f"out{len(more)}"
            common = ["--steps", 6, "--schedule", "constant", "--prompt", os.fsdecode(b"\xfea")]
            self.ok("train", "--data", data, "--out", out, *TINY, *more, *common)
            whole = numbers_of(out / "log.jsonl")
            shutil.rmtree(out)
            common[common.index(6)] = 3
            self.ok("train", "--data", data, "--out", out, *TINY, *more, *common)
            self.ok("train", "--out", out, "--resume", "--no-peak", "--threads", 1, "--steps", 6)
            for line in whole + (resumed := numbers_of(out / "log.jsonl")):
                line.pop("val_loss")  # the first part evaluates at its end
            self.assertEqual(resumed, whole)

    # Signals, and what is left behind

    def wait_for(self, condition):
        for _ in range(1200):
            if condition():
                return
            time.sleep(0.05)
        self.fail("it did not happen")

    def slow_text(self):
        """Whose vocabulary takes long to learn: all words differ."""
        path = self.folder / "text.txt"
        digits = random.Random(1).randbytes(24_000_000).hex()
        path.write_text(" ".join(digits[i:i + 8] for i in range(0, len(digits), 8)))
        return path

    def interrupted(self, number, *arguments, when=None, environment=None):
        """Starts a command, sends the signal when `when` holds (or half a second after the command listens for signals),
        returns its exit code."""
        process = subprocess.Popen([self.binary, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True, env=environment)
        if when:
            self.wait_for(lambda: when() or process.poll() is not None)
        else:
            self.wait_for(lambda: listens(process.pid, number) or process.poll() is not None)
            time.sleep(0.5)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        return process.returncode, errors

    def test_one_behaviour_for_signals(self):
        temporary = self.folder / "tmp"
        temporary.mkdir()
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), "TMPDIR": str(temporary)}
        text = self.slow_text()
        record = self.folder / "r.rooflm"
        endless = ["--max-steps", 1_000_000, "--precision", 0, "--max-seconds", 1000]
        commands = {
            "bench": ["bench", *SMALL, "--steps", 1_000_000, "--no-peak"],
            "bench -o": ["bench", *SMALL, "--steps", 1_000_000, "--no-peak", "-o", record],
            "profile": ["profile", *SMALL, *endless], "study": ["study", "warmup", *SMALL, *endless],
            "peaks": ["peaks", "--seconds", 5], "gemm": ["gemm", "--size", 2048, "--seconds", 100],
            "attention": ["attention", "--seq", 2048, "--seconds", 100],
            "prepare": ["data", "prepare", text, "-o", self.folder / "prepared", "--vocab", 30000],
            "tokenizer": ["data", "train-tokenizer", text, "-o", self.folder / "t.json", "--vocab", 30000],
            "train": ["train", "--data", self.data, "--out", self.out, *TINY, "--steps", 1_000_000],
        }
        for number in (signal.SIGINT, signal.SIGTERM):
            for name, command in commands.items():
                with self.subTest(command=name, signal=number.name):
                    code, errors = self.interrupted(number, *command, environment=environment)
                    self.assertEqual(code, 128 + number, errors)
                    self.assertEqual(list(temporary.iterdir()), [])
                    left = [path for path in self.folder.rglob("*") if path.name.endswith((".new", ".rooflm-tmp"))
                            or path.name in (".rooflm-prepare", "prepared", "t.json")]
                    self.assertEqual(left, [])
                    if record.exists():
                        self.ok("report", record, "--view", "overview")
                        record.unlink()
                    shutil.rmtree(self.out, ignore_errors=True)

    def test_what_kills_leave_is_removed_by_the_next_run(self):
        temporary = self.folder / "tmp"
        temporary.mkdir()
        environment = {**os.environ, "TMPDIR": str(temporary)}
        bench = ["bench", *SMALL, "--no-peak", "--steps"]
        # A record that is being replaced.
        new = self.folder / "a.rooflm.new"
        code, _ = self.interrupted(signal.SIGKILL, *bench, 1_000_000, "-o", self.record, "--overwrite", when=new.exists)
        self.assertEqual(code, -signal.SIGKILL)
        self.assertTrue(new.exists())
        self.ok(*bench, 1, "-o", self.record, "--overwrite")
        self.assertFalse(new.exists())
        # The temporary folder of a command without -o.
        self.interrupted(signal.SIGKILL, *bench, 1_000_000, environment=environment,
                         when=lambda: any(temporary.glob("rooflm-*/run.rooflm")))
        (left,) = temporary.iterdir()
        foreign = temporary / "rooflm-abcdef"
        foreign.mkdir()
        (foreign / "notes.txt").write_text("mine")
        for folder in (left, foreign):
            os.utime(folder, (1, 1))
        self.assertEqual(self.run_rooflm(*bench, 1, env=environment).returncode, 0)
        self.assertEqual(self.names(temporary), ["rooflm-abcdef"])
        self.assertEqual(self.names(foreign), ["notes.txt"])
        # Preparing data.
        text = self.slow_text()
        data = self.folder / "prepared"
        staging = data / ".rooflm-prepare"
        self.interrupted(signal.SIGKILL, "data", "prepare", text, "-o", data, "--vocab", 30000, when=staging.exists)
        self.assertTrue(staging.exists())
        self.ok("data", "prepare", self.book, "-o", data, "--vocab", 300)
        self.assertFalse(staging.exists())
        # A single file.
        tokenizer = self.folder / "t.json"
        (self.folder / ".t.json.rooflm-tmp").write_text("left by a kill")
        self.ok("data", "train-tokenizer", self.book, "-o", tokenizer, "--vocab", 300)
        self.assertFalse((self.folder / ".t.json.rooflm-tmp").exists())

    def test_a_finished_record_beside_is_left_alone(self):
        new = self.folder / "a.rooflm.new"
        shutil.copy(self.record, new)
        bench = ["bench", *SMALL, "--steps", "1", "--no-peak", "-o", self.record]
        self.record.unlink()
        self.ok(*bench)
        self.assertTrue(new.exists())

    def test_two_processes_do_not_prepare_the_same_directory(self):
        text = self.slow_text()
        data = self.folder / "prepared"
        process = subprocess.Popen([self.binary, "data", "prepare", str(text), "-o", str(data), "--vocab", "30000"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_for((data / ".rooflm-prepare").exists)
        self.fails(2, "data", "prepare", self.book, "-o", data, says=["another process"])
        self.assertTrue((data / ".rooflm-prepare").exists())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 143)
        self.assertFalse(data.exists())

    def test_a_record_in_its_first_moments(self):
        path = self.folder / "young.rooflm"
        path.write_bytes(b"")
        for command in ("report", "verify"):
            self.fails(3, command, path, says=["young.rooflm", "being created"])
        self.fails(3, "bench", *SMALL, "--steps", "1", "-o", path, says=["--overwrite"])
        self.ok("bench", *SMALL, "--steps", "1", "--no-peak", "-o", path, "--overwrite")
        with sqlite3.connect(path) as db:
            self.assertEqual(db.execute("SELECT COUNT(*) FROM run").fetchone()[0], 1)
        seen = set()
        for _ in range(5):
            path.unlink()
            process = subprocess.Popen([self.binary, "bench", *SMALL, "--steps", "1", "--no-peak", "-o", str(path)],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None:
                if path.exists():
                    result = self.run_rooflm("report", path, "--view", "overview")
                    is_known = result.returncode == 0 or "being created" in result.stderr
                    self.assertTrue(is_known, result.stderr)
                    seen.add(result.returncode)
        self.assertTrue(seen)


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
