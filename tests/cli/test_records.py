#!/usr/bin/env python3
"""The commands that read run records, as their users see them. The records are made up here, from the schema.

Usage: test_records.py BINARY SCHEMA [unittest options]"""

import contextlib
import csv
import io
import json
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import unittest

BINARY = ""
SCHEMA = ""
APPLICATION_ID = 0x72666C6D
KNOWN = ["--restart", "2%"]  # how little starting anew changes these times
PHASES = {"forward": 0.010, "backward": 0.020, "optimizer": 0.005}


def rooflm(*arguments):
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def write_record(path, scale=1.0, seq=64, steps=30, flop=3000, status="success"):
    """One run whose steps take `scale` times 35 ms, each a little different."""
    with contextlib.closing(sqlite3.connect(path)) as record, record:
        record.executescript(SCHEMA)
        record.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        record.execute("PRAGMA user_version = 4")
        record.execute("INSERT INTO meta VALUES ('finished_utc', '2026-01-31T12:00:00Z')")
        record.execute("INSERT INTO run (id, label, status) VALUES (1, ?, ?)", (f"tiny T={seq}", status))
        for key, value in (("model", "tiny"), ("engine", "fused"), ("device", "cpu"), ("batch", 1), ("seq", seq)):
            record.execute("INSERT INTO config VALUES (1, ?, ?, ?)",
                           (key, value, "text" if isinstance(value, str) else "integer"))
        record.execute("INSERT INTO fact (run, key, value) VALUES (1, 'matmul_flop', ?)", (flop,))
        for op, phase in enumerate(PHASES):
            record.execute(
                "INSERT INTO op (run, op, kind, class, kernel, name, phase, scope, dtype, shapes, matmul_flop,"
                " elementwise_flop, bytes_read, bytes_written, launches)"
                " VALUES (1, ?, 'matmul', 'matmul', 'k', ?, ?, 'h.0/attention', 'fp32', '', 1000, 0, 0, 0, 1)",
                (op, f"t{op}", phase))
        for step in range(steps if status == "success" else 0):
            slow = scale * (1 + 0.002 * (step * 7 % 11 - 5) / 5)
            kind = "observed" if step % 2 else "plain"
            for op, (phase, seconds) in enumerate(PHASES.items()):
                record.execute("INSERT INTO sample VALUES (1, ?, ?, ?, ?, 0)", (step, phase, slow * seconds, kind))
                if kind == "observed":
                    ns = int(1e9 * slow * seconds)
                    record.execute("INSERT INTO event VALUES (1, ?, ?, 0, ?, ?)", (step, op, ns - 1000, ns))
            record.execute("INSERT INTO sample VALUES (1, ?, 'step', ?, ?, 0)",
                           (step, slow * sum(PHASES.values()) + 1e-5, kind))
    return path


class Records(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def record(self, name, **options):
        return write_record(self.folder / name, **options)

    def fails(self, code, *arguments, says=()):
        result = rooflm(*arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        for text in says:
            self.assertIn(text, result.stderr)

    def test_verify_says_that_a_record_fits(self):
        result = rooflm("verify", self.record("a.rooflm"), self.record("b.rooflm"))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[0], r"a\.rooflm holds: \d+ laws, \d+ checks in 1 runs$")

    def test_verify_names_the_violated_law_with_both_numbers(self):
        path = self.record("a.rooflm", flop=3001)
        result = rooflm("verify", path, "--format", "csv")
        self.assertEqual(result.returncode, 1)
        rows = list(csv.DictReader(io.StringIO(result.stdout)))
        self.assertEqual([row["law"] for row in rows], ["FLOP of ops add up to matmul_flop"])
        self.assertEqual((rows[0]["found"], rows[0]["against"]), ("3000", "3001"))
        table = rooflm("verify", path)
        self.assertEqual(table.returncode, 1)
        self.assertIn("FLOP of ops add up to matmul_flop", table.stdout)
        self.assertIn("does not hold: 1 of ", table.stdout)
        everything = json.loads(rooflm("verify", path, "--all", "--format", "json").stdout)
        self.assertGreater(len(everything), 8)
        self.assertTrue(all(row["checked"] > 0 for row in everything))

    def test_files_that_are_no_records(self):
        text = self.folder / "notes.txt"
        text.write_text("notes " * 100)
        foreign = self.folder / "foreign.db"
        with contextlib.closing(sqlite3.connect(foreign)) as database, database:
            database.execute("CREATE TABLE run (id)")
        whole = self.record("a.rooflm")
        cut = self.folder / "cut.rooflm"
        cut.write_bytes(whole.read_bytes()[:-100])
        for path, why in ((text, "no SQLite file"), (foreign, "no run record"), (self.folder, "directory"),
                          (self.folder / "none.rooflm", "No such file"), (cut, "truncated")):
            self.fails(3, "verify", path, says=[str(path), why])
            if path != self.folder:  # compare takes the records in it
                self.fails(3, "compare", whole, path, says=[str(path), why])
        self.fails(2, "verify")
        self.fails(2, "compare", whole)

    def test_compare_finds_what_got_slower(self):
        a, b = self.record("a.rooflm"), self.record("b.rooflm", scale=1.1)
        result = rooflm("compare", a, b, *KNOWN, "--format", "json")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = {row["subject"]: row for row in json.loads(result.stdout)}
        self.assertEqual(list(rows), ["step", *PHASES, *(f"{phase}/attention" for phase in PHASES)])
        for row in rows.values():
            self.assertEqual(row["verdict"], "SLOWER")
            self.assertAlmostEqual(row["ratio"], 1.1, places=2)
            self.assertLessEqual(row["ci_low"], row["ratio"])
            self.assertLessEqual(row["ratio"], row["ci_high"])
        self.assertAlmostEqual(rows["step"]["a_s"], 0.035, places=3)
        self.assertEqual({row["verdict"] for row in json.loads(rooflm("compare", b, a, *KNOWN, "--format", "json").stdout)},
                         {"FASTER"})
        self.assertEqual({row["verdict"] for row in json.loads(rooflm("compare", a, a, *KNOWN, "--format", "json").stdout)},
                         {"SAME"})
        self.assertIn("SLOWER", rooflm("compare", a, b, *KNOWN).stdout)
        generous = json.loads(rooflm("compare", a, b, "--same", "20%", "--format", "json").stdout)
        self.assertEqual({row["verdict"] for row in generous}, {"SAME"})

    def test_the_gate_of_compare(self):
        a, b = self.record("a.rooflm"), self.record("b.rooflm", scale=1.1)
        self.fails(1, "compare", a, b, *KNOWN, "--fail-slower", "3%", says=["slower by more than 3%"])
        self.fails(1, "compare", a, b, *KNOWN, "--fail-slower", "0.03")
        self.fails(0, "compare", a, b, "--fail-slower", "3%")  # one run of each: starting anew may do as much
        self.fails(0, "compare", a, b, *KNOWN, "--fail-slower", "20%")
        self.fails(0, "compare", b, a, *KNOWN, "--fail-slower", "0%")
        self.fails(1, "compare", a, self.record("oom.rooflm", status="oom"), "--fail-slower", "3%", says=["oom"])
        self.fails(2, "compare", a, b, "--fail-slower", "3", says=["--fail-slower 3", "3%"])
        self.fails(2, "compare", a, b, "--same", "much", says=["--same"])
        self.fails(2, "compare", a, b, "--confidence", "100%", says=["--confidence"])

    def test_compare_of_what_does_not_match(self):
        a, b = self.record("a.rooflm"), self.record("b.rooflm", seq=128)
        self.assertIn("seq: 64 / 128", rooflm("compare", a, b).stdout)
        with contextlib.closing(sqlite3.connect(b)) as record, record:
            record.execute("INSERT INTO run SELECT 2, 'tiny T=256', kind, status FROM run")
            record.execute("INSERT INTO config SELECT 2, key, CASE key WHEN 'seq' THEN 256 ELSE value END, type"
                           " FROM config")
        self.fails(3, "compare", a, b, says=["share no configuration", "tiny T=64", "tiny T=128"])


if __name__ == "__main__":
    BINARY, SCHEMA = sys.argv[1], pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
