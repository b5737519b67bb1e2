#!/usr/bin/env python3
"""The commands of README.md, docs/index.md and docs/i_want_to_know.md run as they are printed, from top to bottom, in a fresh folder.

A block that cannot run here has a comment before it: <!-- not run by tests: why -->. Models are smaller than printed: sizes
that a command does not name come from the environment.

Usage: test_documented_commands.py BINARY [unittest options]"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import test_profile

BINARY = pathlib.Path()
ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = {"LAYERS": 2, "D_MODEL": 32, "D_FF": 64, "HEADS": 2, "VOCAB": 2048, "DEVICE": "cpu", "WARMUP": 1, "MIN_STEPS": 2, "MAX_STEPS": 2}
# What commands have from the environment, others SMALL. `peaks` takes the ceilings that are kept.
OTHER = {"plan": {}, "peaks": {"DEVICE": "cpu", "DTYPE": "fp32,bf16"}} | dict.fromkeys(("gemm", "attention", "launch"), SMALL | {"SECONDS": 0.01})
BLOCK = re.compile(r"(?:^<!-- not run by tests: (?P<why>.+) -->\n\n)?(?P<block>(?:^    .*\n)+)", re.MULTILINE)
PROGRAMS = ("rooflm", "mkdir", "printf", "cp")
NOT_DONE = {"verify": 1, "compare": 1}  # what another program slowed down may fail their checks


def blocks_of(text):
    """Lines of each block with commands, and why tests do not run it, if so."""
    for match in BLOCK.finditer(text):
        lines = [line[4:] for line in match["block"].splitlines()]
        if match["why"] or any(re.match(r"(\$ )?rooflm ", line) for line in lines):
            yield lines, match["why"]


class Documents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Ceilings of a machine ten times as fast: they are measured once, and nothing that others slow down matters."""
        cls.cache = tempfile.TemporaryDirectory()
        environment = os.environ | {"ROOFLM_DEVICE": "cpu"}
        test_profile.make_ceilings(pathlib.Path(cls.cache.name), lambda *words: subprocess.run(
            [BINARY, *words], capture_output=True, text=True, timeout=300, env=environment, check=True), 10)

    @classmethod
    def tearDownClass(cls):
        cls.cache.cleanup()

    def run_page(self, page, least):
        ran = 0
        with tempfile.TemporaryDirectory() as folder:
            path = os.pathsep.join([str(BINARY.parent), os.environ["PATH"]])
            plain = dict(os.environ, HOME=folder, PATH=path, XDG_CACHE_HOME=self.cache.name)
            for lines, why in blocks_of((ROOT / page).read_text(encoding="utf-8")):
                for line in lines if why is None else []:
                    missing = [name for name in re.findall(r"\| (\w+)", line) if not shutil.which(name)]
                    if missing:
                        print(f"SKIPPED: {missing[0]} is not installed: {line}", file=sys.stderr)
                        continue
                    with self.subTest(page=page, line=line):
                        self.assertIn(line.split()[0], PROGRAMS, "no command; a block of other text has none")
                        command = line.split()[1] if line.startswith("rooflm ") else ""
                        small = {f"ROOFLM_{name}": str(value) for name, value in OTHER.get(command, SMALL).items()}
                        begin = time.monotonic()
                        done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=300, check=False,
                                              env=plain | small)
                        print(f"{time.monotonic() - begin:6.2f} s  {line[:100]}", file=sys.stderr)
                        if done.returncode == 5 and "--html" in line:
                            continue  # built without the page
                        self.assertIn(done.returncode, (0, NOT_DONE.get(command, 0)), done.stdout[-2000:] + done.stderr[-2000:])
                        ran += 1
        self.assertGreater(ran, least)

    def test_readme(self):
        self.run_page("README.md", 14)

    def test_index(self):
        self.run_page("docs/index.md", 20)

    def test_the_first_questions(self):
        self.run_page("docs/i_want_to_know.md", 13)


if __name__ == "__main__":
    BINARY = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
