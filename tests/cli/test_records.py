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


def write_record(path, scale=1.0, seq=64, steps=30, flop=3000, status="success", threads=2, engine="fused"):
    """One run whose steps take `scale` times 35 ms, each a little different."""
    with contextlib.closing(sqlite3.connect(path)) as record, record:
        record.executescript(SCHEMA)
        record.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        record.execute("PRAGMA user_version = 4")
        record.execute("INSERT INTO meta VALUES ('finished_utc', '2026-01-31T12:00:00Z')")
        record.execute("INSERT INTO run (id, label, status) VALUES (1, ?, ?)", (f"tiny T={seq}", status))
        for key, value in (("model", "tiny"), ("engine", engine), ("device", "cpu"), ("batch", 1), ("seq", seq),
                           ("threads", threads)):
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
        self.assertRegex(lines[0], r"a\.rooflm holds: \d+ laws, \d+ checks in 1 run$")

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
        for path, why in ((text, "not a SQLite file"), (foreign, "not a run record"), (self.folder, "directory"),
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
        largest_first = ("backward", "forward", "optimizer")
        self.assertEqual(list(rows), ["step", *PHASES, *(f"{phase}/attention" for phase in largest_first)])
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
        self.fails(0, "compare", b, a, *KNOWN, "--fail-slower", "0%", "--same", "0%")
        self.fails(1, "compare", a, self.record("oom.rooflm", status="oom"), "--fail-slower", "3%", says=["oom"])
        self.fails(2, "compare", a, b, "--fail-slower", "3", says=["--fail-slower 3", "3%"])
        self.fails(2, "compare", a, b, "--same", "much", says=["--same"])
        self.fails(2, "compare", a, b, "--confidence", "100%", says=["--confidence"])

    def change(self, path, *statements):
        with contextlib.closing(sqlite3.connect(path)) as record, record:
            for statement in statements:
                record.execute(statement)
        return path

    def folder_of(self, name, count, scale, seqs, **options):
        """`count` records, each with a run of every sequence length."""
        (self.folder / name).mkdir()
        for i in range(count):
            path = self.record(f"{name}/{i}.rooflm", scale=scale * (1 + 0.001 * i), seq=seqs[0], **options)
            for run, seq in enumerate(seqs[1:], 2):
                self.change(path, f"INSERT INTO run SELECT {run}, 'tiny T={seq}', kind, status FROM run WHERE id = 1",
                            f"INSERT INTO config SELECT {run}, key, CASE key WHEN 'seq' THEN {seq} ELSE value END, type"
                            " FROM config WHERE run = 1",
                            f"INSERT INTO sample SELECT {run}, step, phase, seconds, kind, 0 FROM sample WHERE run = 1")
        return self.folder / name

    def test_the_gate_sees_what_is_much_slower_whatever_the_numbers_of_runs_and_rows(self):
        a, b = self.folder_of("a", 4, 1, (64, 128)), self.folder_of("b", 4, 10, (64, 128))
        self.fails(1, "compare", a, b, "--fail-slower", "3%", says=["tiny T=64", "tiny T=128"])
        self.assertIn("with 5 runs on each side, runs are compared", rooflm("compare", a, b).stdout)

    def test_repeated_runs_of_two_configurations_are_compared(self):
        eager, fused = self.folder_of("before", 4, 1.1, (64,), engine="eager"), self.folder_of("after", 4, 1, (64,))
        lists = [",".join(map(str, sorted(side.iterdir()))) for side in (eager, fused)]
        for sides in ([eager, fused], lists):
            result = rooflm("compare", *sides)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stdout, r"(?m)^step .* FASTER .* 0\.0%$")  # runs are compared, without an allowance
            self.assertIn("engine: eager / fused", result.stdout)
        self.record("before/other.rooflm", seq=128, engine="eager")
        self.fails(3, "compare", eager, fused, says=["share no configuration"])

    def test_a_busy_machine_and_what_to_do_about_it(self):
        a, b = self.record("a.rooflm"), self.record("b.rooflm", scale=10)
        self.assertNotIn("allowance -:", rooflm("compare", a, b).stdout)
        self.change(b, "INSERT INTO fact (run, key, value, text) VALUES (1, 'others_share', 0.5, 'busy machine: made up')")
        result = rooflm("compare", a, b, "--fail-slower", "3%")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"(?m)^step .* UNSURE .* -$")
        self.assertIn("allowance -: no change is judged, however large: other programs used the processors", result.stdout)
        self.assertIn("measure again on a quiet machine, or make 4 runs on each side, taken in turn", result.stderr)
        said = "Busy machine: other programs used 50.0 % of the processors."
        for view in ("phases", "blocks", "ops", "samples"):
            self.assertIn(said, " ".join(rooflm("report", b, "--view", view).stdout.split()), view)
            self.assertNotIn("Busy machine", rooflm("report", a, "--view", view).stdout, view)

    def test_the_gate_says_what_it_could_not_see(self):
        a, b = self.record("a.rooflm", steps=6), self.record("b.rooflm", steps=6, scale=10)
        self.fails(0, "compare", a, b, "--fail-slower", "3%", says=["cannot judge", "3 and 3 samples", "4 on each side"])
        few = rooflm("compare", a, b)
        self.assertIn("merely a range with fewer than 5 samples", few.stdout)
        self.assertEqual(few.stderr, "", "there is no gate")
        row = json.loads(rooflm("compare", a, b, "--format", "json").stdout)[0]
        self.assertEqual((row["subject"], row["ci_coverage"]), ("step", 0))
        many = [self.record(name, scale=scale) for name, scale in (("c.rooflm", 1), ("d.rooflm", 1.2))]
        self.fails(0, "compare", *many, "--fail-slower", "3%", says=["changes of up to 50%"])
        self.assertNotIn("cannot judge", rooflm("compare", *many, *KNOWN, "--fail-slower", "30%").stderr)

    def test_the_gate_is_of_whole_steps_whatever_is_shown(self):
        a, b = self.record("a.rooflm"), self.record("b.rooflm", scale=3)
        for shown in (["--phase", "forward"], ["--scope", "attention"], ["--run", "T=64"]):
            self.fails(1, "compare", a, b, *shown, "--fail-slower", "3%", says=["slower by more than 3%"])
        self.assertNotIn("step", rooflm("compare", a, b, "--phase", "forward", "--format", "csv").stdout.split("\n", 1)[1])

    def test_the_gate_of_compare_needs_limits_that_fit(self):
        a, b = self.record("a.rooflm"), self.record("b.rooflm", scale=3)
        self.fails(2, "compare", a, b, "--same", "300%", "--fail-slower", "3%", says=["--same 300%", "--fail-slower 3%"])
        self.fails(2, "compare", a, b, "--fail-slower", "0.5%", says=["add --same 0.5%"])
        self.fails(1, "compare", a, b, "--fail-slower", "1%")

    def test_the_gate_misses_nothing_that_is_not_there(self):
        a = self.folder_of("a", 1, 1, (64, 128)) / "0.rooflm"
        zero = self.change(self.folder_of("zero", 1, 5, (64, 128)) / "0.rooflm",
                           "UPDATE sample SET seconds = 0 WHERE run = 1 AND phase = 'step' AND step = 4")
        self.fails(1, "compare", a, zero, "--run", "T=128", "--fail-slower", "450%", says=["tiny T=64 (a time of its step"])
        whole = self.record("whole.rooflm")
        self.fails(0, "compare", a, whole, "--fail-slower", "3%")
        self.change(whole, "DELETE FROM meta WHERE key = 'finished_utc'")
        self.fails(1, "compare", a, whole, "--fail-slower", "3%", says=["tiny T=128 (missing, B is unfinished)"])

    def test_runs_with_other_threads_are_other_rows(self):
        a, b = (self.folder / name for name in "ab")
        for folder, slow in ((a, 1), (b, 10)):
            folder.mkdir()
            for threads in (1, 8):
                write_record(folder / f"{threads}.rooflm", threads=threads,
                             scale=8 / threads * (slow if threads == 8 else 1))
        self.fails(1, "compare", a, b, "--fail-slower", "3%", says=["tiny T=64, threads=8"])
        rows = json.loads(rooflm("compare", a, b, "--run", "threads=1", "--format", "json").stdout)
        self.assertEqual({row["run"] for row in rows}, {"tiny T=64, threads=1"})
        self.assertEqual({row["verdict"] for row in rows}, {"SAME"})

    def test_a_record_counts_once_on_a_side(self):
        a, b = self.record("a.rooflm"), self.record("b.rooflm")
        (self.folder / "link.rooflm").symlink_to(a)
        for side in (f"{a},{a}", f"{a},{self.folder}/link.rooflm"):
            self.fails(2, "compare", side, b, says=["the same file on one side"])
            self.fails(2, "compare", b, side, says=["the same file on one side"])
        self.assertEqual(rooflm("compare", a, a).returncode, 0, "on both sides it may be")

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
