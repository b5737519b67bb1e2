#!/usr/bin/env python3
"""Faults by schedule: the process is killed at each write, fsync and rename of checkpoints, prepared data and
records; the disk is full from each write on; reads and writes are short, interrupted, or fail.

Usage: test_faults.py BINARY FAULT_INJECTOR_LIBRARY [unittest options]. FAULT_EVERY=n tries every n-th place (5);
1 takes some minutes. FAULT_FROM=n begins with the n-th (1), so that several processes can share the places. FAULT_STEPS=n:
training saves n checkpoints (3), each of 64 places. A thousand kills: FAULT_EVERY=1 FAULT_STEPS=13, with the option -k killed."""

import errno
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

from training_runs import TINY, TrainingRuns, numbers_of, words

EVERY = int(os.environ.get("FAULT_EVERY", "5"))
FROM = int(os.environ.get("FAULT_FROM", "1"))
STEPS = int(os.environ.get("FAULT_STEPS", "3"))
CHANGES = "write,fsync,truncate,rename,unlink,mkdir,symlink"
MODEL = ["--model", "tiny", "--layers", "1", "--d-model", "32", "--heads", "2", "--d-ff", "64", "--vocab", "256",
         "--batch", "1", "--seq", "16", "--threads", "1"]


class Faults(TrainingRuns):
    library = ""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tried = cls.kills = 0

    @classmethod
    def tearDownClass(cls):
        print(f"{cls.tried} faults, {cls.kills} of them kills", file=sys.stderr)
        super().tearDownClass()

    def setUp(self):
        super().setUp()
        self.place = self.folder / "place"
        self.place.mkdir()
        self.out = self.place / "out"
        self.book = self.folder / "book.txt"
        self.book.write_text(words(200, 1))
        self.start = self.run_rooflm  # what a fault happens to

    def run_with(self, act, at, calls, command):
        environment = {**os.environ, "LD_PRELOAD": self.library, "FAULT_PATH": str(self.place), "FAULT_CALLS": calls,
                       "FAULT_DO": str(act), "FAULT_AT": str(at), "FAULT_COUNT": str(self.folder / "count")}
        return self.start(*command, env=environment)

    def fresh(self, prepare):
        shutil.rmtree(self.place)
        self.place.mkdir()
        prepare()

    def each(self, act, calls, prepare, command, is_harmless=False):
        """For each place of the schedule: `prepare`, then `command` with the fault there; yields its result. It fails
        unless some of the faults are harmless."""
        self.fresh(prepare)
        result = self.run_with("", 0, calls, command)
        self.assertEqual(result.returncode, 0, result.stderr)
        count = int((self.folder / "count").read_text())
        self.assertGreater(count, 0)
        for at in range(FROM, count + 1, EVERY):
            self.fresh(prepare)
            result = self.run_with(act, at, calls, command)
            type(self).tried += 1
            type(self).kills += result.returncode == -signal.SIGKILL
            if act == "kill" and result.returncode == 0:
                return  # it made fewer calls than before: the clock decides when a record is written
            expected = [-signal.SIGKILL if act == "kill" else 3] + [0] * is_harmless
            self.assertIn(result.returncode, expected, f"{act} at {at} of {count}: {result.stderr}")
            try:
                yield result
            except GeneratorExit:
                print(f"{self.id()}: {act} at {at} of {count}: {result.stderr}", file=sys.stderr)
                raise

    def left(self):
        return [path for path in self.place.rglob("*") if path.name.endswith((".tmp", ".new", ".rooflm-tmp", "-wal", "-shm",
                                                                              "-journal")) or path.name == ".rooflm-prepare"]

    # Training

    def training(self, model=TINY, steps=STEPS):
        """The command, and what it leads to."""
        command = ["train", "--data", self.data, "--out", self.out, *model, "--steps", steps, "--checkpoint-every", 1, "--keep", 1,
                   "--resume"]
        self.fresh(lambda: None)
        self.ok(*command)
        return command, numbers_of(self.out / "log.jsonl"), self.weights()

    def weights(self):
        """As digests: a comparison of megabytes that differ would take hours to print."""
        return [hashlib.sha256((self.out / "latest" / name).read_bytes()).hexdigest()
                for name in ("model.safetensors", "adapter_model.safetensors", "optimizer.safetensors") if (self.out / "latest" / name).exists()]

    def check_resumes(self, command, log, weights):
        for checkpoint in self.checkpoints():
            if checkpoint.name[11:].isdigit():
                self.ok("eval", "--model", checkpoint, "--data", self.data, "--batch", 1, "--seq", 16, "--batches", 1)
        self.ok(*command)
        self.assertEqual(numbers_of(self.out / "log.jsonl"), log)
        self.assertEqual(self.weights(), weights)
        self.assertEqual(self.left(), [])

    def test_training_killed_at_each_change(self):
        command, log, weights = self.training()
        for _ in self.each("kill", CHANGES, lambda: None, command):
            self.check_resumes(command, log, weights)

    def trained(self):
        """A model that stays, outside of the place of faults."""
        model = self.folder / "model"
        self.ok("train", "--data", self.data, "--out", model, *TINY, "--steps", 1)
        return model

    def test_adapters_killed_at_each_change(self):
        tuning = ["--model", self.trained(), "--lora", "2", "--batch", 2, "--seq", 16, "--no-peak", "--threads", 1]
        command, log, weights = self.training(tuning, steps=2)
        for _ in self.each("kill", CHANGES, lambda: None, command):
            self.check_resumes(command, log, weights)

    def test_training_on_a_disk_that_is_full_from_each_write_on(self):
        command, log, weights = self.training()
        for result in self.each(f"{errno.ENOSPC}+", "write", lambda: None, command):
            self.assertIn("No space left on device", result.stderr)
            self.assertEqual(self.left(), [])
            self.check_resumes(command, log, weights)

    def test_training_whose_renames_fail(self):
        command, log, weights = self.training()
        for result in self.each(errno.ENOSPC, "rename", lambda: None, command, is_harmless=True):
            if result.returncode != 0:  # an old checkpoint may stay
                self.assertIn("No space left on device", result.stderr)
            self.assertEqual(self.left(), [])
            self.check_resumes(command, log, weights)

    def test_short_and_interrupted_calls_change_nothing(self):
        command, log, weights = self.training()
        for act in ("half", "eintr"):
            self.fresh(lambda: shutil.copytree(self.data, self.place / "data"))
            moved = [self.place / "data" if part == self.data else part for part in command]
            result = self.run_with(act, 1, "read,write,fsync", moved)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(numbers_of(self.out / "log.jsonl"), log)
            self.assertEqual(self.weights(), weights)
            record = self.place / "r.rooflm"
            bench = ["bench", *MODEL, "--device", "null", "-o", record]
            self.assertEqual(self.run_with(act, 1, "read,write", bench).returncode, 0)
            self.ok("report", record, "--view", "overview")

    def test_errors_of_reading_are_named(self):
        data = self.place / "data"
        command = ["train", "--data", data, "--out", self.out, *TINY, "--steps", 2]
        codes = set()
        # What is read ahead may not be needed any more.
        for result in self.each(errno.EIO, "read", lambda: shutil.copytree(self.data, data), command, is_harmless=True):
            codes.add(result.returncode)
            if result.returncode != 0:
                self.assertRegex(result.stderr, "cannot read .*bin: Input/output error")
        self.assertIn(3, codes)

    # Prepared data

    def contents(self, folder):
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    def preparing(self):
        old, new = self.folder / "old", self.folder / "new"
        self.ok("data", "prepare", self.book, "-o", old, "--vocab", 290, "--shard-tokens", 900)
        data = self.place / "data"
        command = ["data", "prepare", self.book, "-o", data, "--vocab", 300, "--overwrite", "--shard-tokens", 1500]
        self.ok(*command)
        shutil.copytree(data, new)
        return data, command, lambda: shutil.copytree(old, data), self.contents(old), self.contents(new)

    def test_preparing_killed_at_each_change(self):
        data, command, prepare, old, new = self.preparing()
        for before in (prepare, lambda: None):
            for _ in self.each("kill", CHANGES, before, command):
                now = self.contents(data) if data.exists() else {}
                if "meta.json" in now:
                    self.assertIn(now, (old, new))
                    self.ok("data", "info", data)
                self.ok(*command)
                self.assertEqual(self.contents(data), new)
                self.assertEqual(self.left(), [])

    def test_preparing_with_a_full_disk_leaves_the_old(self):
        data, command, prepare, old, _ = self.preparing()
        for act, calls in ((f"{errno.ENOSPC}+", "write"), (errno.ENOSPC, "rename")):
            for result in self.each(act, calls, prepare, command):
                self.assertIn("No space left on device", result.stderr)
                self.assertEqual(self.contents(data), old)
                self.assertEqual(self.left(), [])

    def test_a_tokenizer_is_there_whole_or_not_at_all(self):
        path = self.place / "t.json"
        command = ["data", "train-tokenizer", self.book, "-o", path, "--vocab", 300, "--overwrite"]
        self.ok(*command)
        new = path.read_bytes()
        for act, calls in (("kill", CHANGES), (f"{errno.ENOSPC}+", "write"), (errno.EIO, "write"), (errno.ENOSPC, "rename")):
            for _ in self.each(act, calls, lambda: path.write_text("old"), command):
                self.assertIn(path.read_bytes(), (b"old", new))
                if act != "kill":
                    self.assertEqual(self.left(), [])
                self.ok(*command)
                self.assertEqual((path.read_bytes() == new, self.left()), (True, []))

    # Records

    def test_records_killed_at_each_change(self):
        path = self.place / "r.rooflm"
        old = self.folder / "old.rooflm"
        bench = ["bench", *MODEL, "--device", "null", "-o"]
        self.ok(*bench, old)
        for replaces, before in ((True, lambda: shutil.copy(old, path)), (False, lambda: None)):
            for _ in self.each("kill", CHANGES, before, [*bench, path, "--overwrite"]):
                if replaces or path.exists():
                    result = self.run_rooflm("report", path, "--view", "overview")
                    is_young = not replaces and "being created" in result.stderr
                    self.assertTrue(result.returncode == 0 or is_young, result.stderr)
                self.ok(*bench, path, "--overwrite")
                self.ok("verify", path)
                self.assertEqual(self.left(), [])

    def test_records_on_a_full_disk(self):
        path = self.place / "r.rooflm"
        old = self.folder / "old.rooflm"
        bench = ["bench", *MODEL, "--device", "null", "-o"]
        self.ok(*bench, old)
        for result in self.each(f"{errno.ENOSPC}+", "write", lambda: shutil.copy(old, path), [*bench, path, "--overwrite"]):
            self.assertRegex(result.stderr, "No space left on device|full")
            self.assertEqual(path.read_bytes(), old.read_bytes())
            self.ok(*bench, path, "--overwrite")
            self.assertEqual(self.left(), [])

    # Exports and imports

    def check_replaced(self, path, command):
        """A file that is replaced is the old one or the new one, whatever is killed or full."""
        self.fresh(lambda: None)
        self.ok(*command)
        new = path.read_bytes()
        for act, calls in (("kill", CHANGES), (f"{errno.ENOSPC}+", "write"), (errno.ENOSPC, "rename")):
            for result in self.each(act, calls, lambda: path.write_text("old"), [*command, "--overwrite"]):
                self.assertIn(path.read_bytes(), (b"old", new))
                if act != "kill":
                    self.assertRegex(result.stderr, "No space left on device|full")
                    self.assertEqual(self.left(), [])
                self.ok(*command, "--overwrite")
                self.assertEqual((path.read_bytes() == new, self.left()), (True, []))

    def profiled(self):
        record = self.folder / "profile.rooflm"
        self.ok("profile", *MODEL, "--device", "cpu", "--max-steps", 2, "-o", record)
        return record

    def test_exports_killed_at_each_change(self):
        record = self.profiled()
        for form in ("kineto", "nsys-sqlite", "openmetrics", "folded"):
            with self.subTest(format=form):
                path = self.place / "out"
                self.check_replaced(path, ["export", record, "--format", form, "-o", path])

    def test_models_killed_at_each_change(self):
        """Adapters and their base as one model: its directory is there whole or not at all."""
        adapters, model = self.folder / "adapters", self.place / "model"
        self.ok("train", "--data", self.data, "--out", adapters, "--model", self.trained(), "--lora", "2", "--batch", 2, "--seq", 16,
                "--no-peak", "--threads", 1, "--steps", 1)
        command = ["export", adapters, "--format", "huggingface", "-o", model]
        self.ok(*command)
        whole = self.contents(model)
        for _ in self.each("kill", CHANGES, lambda: None, command):
            if not model.exists():
                self.ok(*command)
            self.assertEqual(self.contents(model), whole)

    def serve(self, *command, env=None):
        """A server that is asked to end as soon as it serves."""
        with subprocess.Popen([self.binary, *map(str, command)], stderr=subprocess.PIPE, text=True, env=env) as server:
            said = ""
            for line in server.stderr:
                said += line
                if "serving" in line:
                    server.terminate()
        return subprocess.CompletedProcess(command, server.returncode, "", said)

    def test_records_of_servers_killed_at_each_change(self):
        path = self.place / "r.rooflm"
        command = ["serve", "--model", self.trained(), "--port", 0, "--threads", 1, "--slots", 1, "-o", path, "--overwrite"]
        self.start = self.serve
        for _ in self.each("kill", CHANGES, lambda: None, command):
            if path.exists():
                result = self.run_rooflm("report", path, "--view", "overview")
                self.assertTrue(result.returncode == 0 or "being created" in result.stderr, result.stderr)
            self.assertEqual(self.serve(*command).returncode, 0)
            self.ok("report", path, "--view", "overview")
            self.assertEqual(self.left(), [])

    def test_imports_killed_at_each_change(self):
        record = self.profiled()
        path = self.place / "r.rooflm"
        for form in ("kineto", "nsys-sqlite"):
            trace = self.folder / f"trace.{'json' if form == 'kineto' else 'sqlite'}"
            self.ok("export", record, "--format", form, "-o", trace)
            command = ["import", trace, "-o", path, "--overwrite"]
            for _ in self.each("kill", CHANGES, lambda: shutil.copy(record, path), command):
                self.ok("report", path, "--view", "overview")
                self.ok(*command)
                self.ok("report", path, "--view", "overview")
                self.assertEqual(self.left(), [])

    def test_a_recorder_on_a_full_disk_leaves_no_folder_behind(self):
        record = ["record", "-o", self.place / "r.rooflm", "--", "true"]
        for result in self.each(f"{errno.ENOSPC}+", "write", lambda: None, record):
            self.assertIn("No space left on device", result.stderr)
            self.assertEqual(list(self.place.iterdir()), [])


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    Faults.library = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
