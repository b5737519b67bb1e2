#!/usr/bin/env python3
"""What a newcomer asks first, from outside: compare op by op and within a record, a record in brief.

Usage: test_first_questions.py BINARY [unittest options]"""

import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

from test_profile import QUICK, SMALL, TIMEOUT, make_ceilings

BINARY = ""


class FirstQuestions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="rooflm-first-"))
        cls.environment = dict(os.environ, XDG_CACHE_HOME=str(cls.folder / "cache"))
        make_ceilings(cls.folder / "cache", cls.rooflm, 10)
        cls.record = cls.folder / "a.rooflm"
        result = cls.rooflm("profile", *SMALL, *QUICK, "--engine", "eager,fused", "-o", cls.record)
        assert result.returncode == 0, result.stderr

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    @classmethod
    def rooflm(cls, *arguments, columns=None):
        environment = cls.environment if columns is None else {**cls.environment, "COLUMNS": str(columns)}
        return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT,
                              env=environment, check=False)

    def ok(self, *arguments):
        result = self.rooflm(*arguments)
        self.assertEqual(result.returncode, 0, f"{arguments}: {result.stderr}")
        return result.stdout

    def fails(self, code, *arguments, says=()):
        result = self.rooflm(*arguments)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stderr}")
        for text in says:
            self.assertIn(text, result.stderr)

    def test_compare_shows_what_adds_most_first_in_80_columns(self):
        slow = self.folder / "slow_op.rooflm"
        shutil.copy(self.record, slow)
        with sqlite3.connect(slow) as db:
            op, = db.execute("SELECT op FROM op WHERE run = 1 AND scope LIKE '%fc1' AND phase = 'backward' LIMIT 1").fetchone()
            db.execute("UPDATE event SET device_ns = device_ns + 50000000, wall_ns = wall_ns + 50000000 WHERE run = 1 AND op = ?", (op,))
            db.execute("UPDATE sample SET seconds = seconds + 0.05 WHERE run = 1 AND phase IN ('step', 'backward')")
        rows = json.loads(self.ok("compare", self.record, slow, "--run", "1", "--format", "json"))
        parts = [row["subject"] for row in rows if "/" in row["subject"]]
        self.assertEqual(parts[0], "backward/feed_forward/fc1")
        self.assertAlmostEqual(next(row for row in rows if row["subject"] == parts[0])["difference_s"], 0.05, places=4)
        blocks = json.loads(self.ok("compare", self.record, slow, "--run", "1", "--by", "block", "--format", "json"))
        self.assertIn("backward/feed_forward", [row["subject"] for row in blocks])
        for by in ("op", "block", "kernel"):
            text = self.rooflm("compare", self.record, slow, "--by", by, columns=80).stdout
            self.assertEqual([line for line in text.splitlines() if len(line) > 80 and " " in line.strip()], [], by)
            self.assertRegex(text, r"(?s)a step takes .* in B and .* in\s+A, B / A")

    def test_compare_within_one_record(self):
        sweep = self.folder / "sweep.rooflm"
        self.ok("bench", *SMALL, "--engine", "eager,fused", "--warmup", "1", "--steps", "6", "-o", sweep)
        text = self.ok("compare", sweep)
        self.assertIn("A: eager", text)
        rows = json.loads(self.ok("compare", sweep, "--run", "2,1", "--format", "json"))
        turned = json.loads(self.ok("compare", sweep, "--format", "json"))
        self.assertAlmostEqual(rows[0]["a_s"], turned[0]["b_s"], places=12)
        self.fails(2, "compare", sweep, "--between", "dtype", says=["do not pair by two values"])
        self.fails(2, "compare", sweep, "--run", "1", says=["--run names two configurations"])
        self.fails(2, "compare", sweep, sweep, "--between", "engine", says=["leave out B"])

    def test_report_in_brief(self):
        text = self.rooflm("report", self.record, "--brief", columns=80).stdout
        self.assertLessEqual(len(text.splitlines()), 10, text)
        self.assertRegex(text, r"(?m)^next: rooflm \w+")
        brief = json.loads(self.ok("report", self.record, "--brief", "--format", "json"))
        advice = json.loads(self.ok("report", self.record, "--view", "advice", "--format", "json"))[0]["tables"]
        listed = {(row["subject"], row["gain_s"]) for table in advice for row in table["rows"]}
        for finding in brief["findings"]:
            self.assertIn((finding["subject"], finding["gain_s"]), listed)
        self.assertGreater(brief["step_s"], 0)
        self.fails(2, "report", self.record, "--brief", "--view", "ops", says=["--brief stands alone"])
        self.fails(2, "report", self.record, "--brief", "--format", "csv", says=["--brief is text or"])


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
