"""The action of packaging/compare: what its step runs, with and without a baseline, and where a step got slower.

Usage: test_action.py BINARY SOURCE_FOLDER"""

import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import unittest

COMMAND = "bench --model tiny --layers 1 --d-model 32 --heads 2 --vocab 50 --batch 1 --seq 8 --steps 8 --no-peak --device 'cpu'"


class Action(unittest.TestCase):
    binary = source = pathlib.Path()

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        text = (self.source / "packaging" / "compare" / "action.yml").read_text(encoding="utf-8")
        self.script = textwrap.dedent(text.split("run: |\n", 1)[1])
        self.inputs = dict(re.findall(r"^        (ROOFLM_\w+): \$\{\{ inputs\.([\w-]+) \}\}$", text, re.MULTILINE))
        self.declared = set(re.findall(r"^  ([\w-]+):$", text.split("inputs:\n", 1)[1].split("runs:\n", 1)[0], re.MULTILINE))

    def run_step(self, **given):
        values = {"command": COMMAND, "baseline": "perf/base.rooflm", "fail-slower": "3%", "record": "new.rooflm"} | given
        summary = self.folder / "summary.md"
        environment = os.environ | {name: values[key] for name, key in self.inputs.items()} | {
            "PATH": f"{self.binary.parent}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(summary)}
        done = subprocess.run(["bash", "-c", self.script], cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, summary.read_text(encoding="utf-8") if summary.is_file() else done.stderr

    def test_steps_are_compared(self):
        self.assertEqual(set(self.inputs.values()), self.declared)
        code, summary = self.run_step()
        self.assertEqual(code, 0, summary)
        self.assertIn("No baseline yet: perf/base.rooflm", summary)
        code, summary = self.run_step(**{"fail-slower": "1000000%"})
        self.assertEqual(code, 0, summary)
        self.assertIn("|", summary, "a table in Markdown")
        # A baseline that was far faster.
        with sqlite3.connect(self.folder / "perf/base.rooflm") as record:
            record.execute("UPDATE sample SET seconds = seconds / 1000000")
        record.close()
        code, summary = self.run_step()
        self.assertEqual(code, 1, summary)

    def test_a_command_that_fails_ends_it(self):
        code, said = self.run_step(command="bench --model nothing")
        self.assertEqual(code, 2, said)
        self.assertIn("unknown model 'nothing'", said)


if __name__ == "__main__":
    Action.binary, Action.source = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    del sys.argv[1:3]
    unittest.main()
