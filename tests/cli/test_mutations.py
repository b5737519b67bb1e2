#!/usr/bin/env python3
"""Three hundred damaged files against the binary: whatever a file holds, the command ends with an exit code of the
contract, soon, and prints nothing that steers a terminal. The same files every time: a seed decides.

Usage: test_mutations.py BINARY [unittest options]"""

import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import unittest

from training_runs import TINY, TrainingRuns

FILES = 300
FOREIGN = pathlib.Path(__file__).resolve().parent.parent / "fuzz" / "seeds" / "import"
STUDY = """title = "Shapes"
question = "How do costs grow?"
kind = "profile"
views = ["overview", "blocks"]
[options]
model = "tiny"
layers = 1
vocab = 256
device = "null"
seq = [16, 32]
batch = 1
[large]
seq = "16:64:16"
"""
MODEL = {"arch": "llama", "layers": 1, "heads": 2, "d_model": 32, "d_ff": 64, "vocab": 256, "norm_eps": 1e-5}
VALUES = ["-1", "0", "1e999", "1e300", "9223372036854775807", "18446744073709551616", "null", "true", '""', "[]", "{}",
          "0.5", '"\\u001b[2J"', "[" * 100 + "]" * 100, '"' + "x" * 2000 + '"']


def mutate(data, chance):
    """Bytes that differ from `data` in one way or a few."""
    data = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(len(data)) if data else 0
        length = chance.choice((1, 2, 8, 64, 1000))
        kind = chance.randrange(8)
        if kind == 0 and data:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            del data[at:at + length]
        elif kind == 3:
            data[at:at + length] = bytes([chance.choice((0, 0x7F, 0x80, 0xFF))]) * length
        elif kind == 4:
            data[at:at] = data[at:at + length]
        elif kind == 5:
            data[at:at] = chance.choice((b"[", b"{\"a\":", b"\x1b[2J", b"\xff\xfe", b"\"", b"\n")) * length
        else:
            replace_value(data, chance)
    return bytes(data)


def replace_value(data, chance):
    """One value of a text such as JSON or TOML; of other files a few bytes."""
    starts = [i for i, c in enumerate(data[:20_000]) if c in b":=" and i + 1 < len(data)]
    if not starts:
        return
    begin = chance.choice(starts) + 1
    end = begin
    while end < len(data) and data[end] not in b",\n}":
        end += 1
    data[begin:end] = chance.choice(VALUES).encode()


class Mutations(TrainingRuns):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = pathlib.Path(cls.shared.name)
        cls.trained = folder / "out"
        run = [cls.binary, "train", "--data", str(cls.data), "--out", str(cls.trained), *TINY, "--steps", "2", "--schedule", "constant"]
        subprocess.run(run, check=True, capture_output=True)
        cls.record = folder / "r.rooflm"
        plan = ["--device", "null", "--model", "tiny", "--layers", "1", "--vocab", "256", "--seq", "16"]
        subprocess.run([cls.binary, "profile", *plan, "-o", str(cls.record)], check=True, capture_output=True)
        (folder / "a.txt").write_text("the cat sees a dog.\n" * 20)
        (folder / "study.toml").write_text(STUDY)
        (folder / "model.json").write_text(json.dumps(MODEL, indent=1))

    def cases(self):
        """(the good file, how a folder with it and its company is made, the command that reads it)"""
        shared = pathlib.Path(self.shared.name)
        checkpoint = next(self.trained.glob("checkpoint-*"))
        read = ["eval", "--data", str(self.data), "--batch", "2", "--seq", "8", "--batches", "1", "--threads", "1", "--model"]
        resume = ["train", "--resume", *TINY, "--steps", "3", "--schedule", "constant", "--data", str(self.data), "--out"]
        for name in ("config.json", "model.safetensors", "state.json", "tokenizer.json"):
            yield checkpoint / name, lambda to: shutil.copytree(checkpoint, to), lambda to, _: [*read, str(to)]
        for name in ("optimizer.safetensors", "state.json"):
            yield (checkpoint / name, lambda to: shutil.copytree(checkpoint, to / checkpoint.name),
                   lambda to, _: [*resume, str(to)])
        yield self.data / "meta.json", lambda to: shutil.copytree(self.data, to), lambda to, _: ["data", "info", str(to)]
        shard = self.data / "val_000000.bin"
        yield shard, pathlib.Path.mkdir, lambda _, file: ["data", "info", str(file)]
        yield self.data / "tokenizer.json", pathlib.Path.mkdir, lambda _, file: [
            "data", "tokenize", "--tokenizer", str(file), str(shared / "a.txt")]
        yield self.record, pathlib.Path.mkdir, lambda _, file: ["report", str(file), "--format", "json"]
        yield self.record, pathlib.Path.mkdir, lambda _, file: ["verify", str(file)]
        for good in sorted(FOREIGN.iterdir()):
            yield good, pathlib.Path.mkdir, lambda to, file: ["import", str(file), "-o", str(to / "out.rooflm")]
        yield shared / "study.toml", pathlib.Path.mkdir, lambda _, file: ["study", str(file)]
        yield shared / "model.json", pathlib.Path.mkdir, lambda _, file: ["program", "--model", str(file), "--seq", "8"]

    def attempt(self, number, good, make_folder, command_of):
        """What is wrong with how the binary takes one damaged file; "" when nothing is."""
        folder = self.folder / f"{number}"
        make_folder(folder)
        nested = list(folder.rglob(good.name))
        file = nested[0] if nested else folder / good.name
        file.write_bytes(mutate(good.read_bytes(), random.Random(number)))
        environment = dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"), OMP_NUM_THREADS="1")
        command = [self.binary, *command_of(folder, file)]
        try:
            result = subprocess.run(command, capture_output=True, timeout=60, env=environment, check=False)
        except subprocess.TimeoutExpired:
            return f"{number}: {good.name}: no end: {command}"
        if not 0 <= result.returncode <= 5:
            return f"{number}: {good.name}: exit code {result.returncode}: {command}: {result.stderr[-300:]!r}"
        said = [line for line in result.stderr.split(b"\n") if line.startswith(b"rooflm: ")]
        if b"\x1b" in result.stderr or any(len(line) > 4200 for line in said):
            return f"{number}: {good.name}: what it says is long or steers the terminal: {result.stderr[:300]!r}"
        shutil.rmtree(folder)
        return ""

    def test_every_damaged_file_ends_in_an_exit_code(self):
        cases = list(self.cases())
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            faults = pool.map(lambda i: self.attempt(i, *cases[i % len(cases)]), range(FILES))
            self.assertEqual([fault for fault in faults if fault], [])

    def test_the_files_themselves_are_good(self):
        for number, (good, make_folder, command_of) in enumerate(self.cases()):
            folder = self.folder / f"good{number}"
            make_folder(folder)
            file = folder / good.name
            if folder.is_dir() and not list(folder.rglob(good.name)):
                shutil.copy(good, file)
            result = self.run_rooflm(*command_of(folder, file))
            self.assertEqual(result.returncode, 0, f"{good}: {result.stderr}")


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
