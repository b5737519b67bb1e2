"""What the tests of `rooflm train` share: a small corpus, a tiny model, running the binary."""

import json
import pathlib
import random
import subprocess
import tempfile
import unittest

TINY = ["--model", "tiny", "--layers", "1", "--d-model", "32", "--heads", "2", "--d-ff", "64", "--batch", "2",
        "--seq", "16", "--lr", "0.01", "--no-peak", "--threads", "1"]
NUMBERS = ("step", "loss", "lr", "grad_norm", "tokens", "val_loss")


def words(count, seed):
    """Text with something to learn: sentences of few words."""
    chance = random.Random(seed)
    subjects = "the cat,a dog,my friend,the old man,nobody".split(",")
    verbs = "sees,likes,does not know,remembers".split(",")
    return " ".join(f"{chance.choice(subjects)} {chance.choice(verbs)} {chance.choice(subjects)}." for _ in range(count))


def numbers_of(log):
    """The log without its times."""
    lines = [json.loads(line) for line in pathlib.Path(log).read_text().splitlines()]
    return [{key: line[key] for key in NUMBERS} for line in lines]


class TrainingRuns(unittest.TestCase):
    """A prepared data directory per class, a scratch directory per test."""

    binary = ""

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.shared.name)
        texts = folder / "texts"
        texts.mkdir()
        for i in range(10):
            (texts / f"{i}.txt").write_text(words(60, i))
        cls.data = folder / "data"
        subprocess.run([cls.binary, "data", "prepare", str(texts), "-o", str(cls.data), "--vocab", "300",
                        "--val-fraction", "0.2"], check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.shared.cleanup()

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.out = self.folder / "out"

    def run_rooflm(self, *arguments, **options):
        return subprocess.run([self.binary, *map(str, arguments)], capture_output=True, text=True, errors="replace",
                              timeout=300, **options)

    def ok(self, *arguments):
        result = self.run_rooflm(*arguments)
        self.assertEqual(result.returncode, 0, f"{arguments}: {result.stderr}{result.stdout}")
        return result.stdout

    def fails(self, code, *arguments, says=(), **options):
        result = self.run_rooflm(*arguments, **options)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stderr}")
        lines = [line for line in result.stderr.splitlines() if line.startswith(("rooflm: ", "launch: "))]
        self.assertEqual(len(lines), 1, result.stderr)
        for text in says:
            self.assertIn(text, lines[0])

    def train(self, *arguments):
        """One run; its summary."""
        return json.loads(self.ok("train", "--data", self.data, "--out", self.out, *TINY, *arguments, "--format", "json"))[0]

    def start(self, *arguments):
        return subprocess.Popen([self.binary, "train", "--data", str(self.data), "--out", str(self.out), *TINY,
                                 *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def checkpoints(self):
        """Complete ones, oldest first."""
        return sorted(path for path in self.out.glob("checkpoint-*") if path.suffix != ".tmp")


