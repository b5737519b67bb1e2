#!/usr/bin/env python3
"""profile, study, report, verify and compare from outside: records, views, exit codes, wrong input.

Usage: test_profile.py BINARY [unittest options]"""

import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as xml

BINARY = ""
TIMEOUT = 1500 if os.environ.get("ROOFLM_SANITIZER") else 300
SMALL = ["--model", "tiny", "--layers", "2", "--d-model", "64", "--d-ff", "128", "--heads", "2", "--vocab", "256",
         "--batch", "2", "--seq", "32"]
QUICK = ["--warmup", "1", "--min-steps", "3", "--max-steps", "4", "--max-seconds", "5"]


def make_ceilings(cache, rooflm, factor):
    """The file that keeps ceilings, of a machine `factor` times as fast as this one is now."""
    about = json.loads(rooflm("info", "--format", "json").stdout)
    key = {"processor": about["cpu"]["model"], "threads": about["cpu"]["threads"], "rooflm": about["version"],
           "measuring": about["measuring"]}
    rows = json.loads(rooflm("peaks", "--dtype", "fp32,bf16", "--seconds", "0.02", "--format", "json").stdout)
    rows = [row for row in rows if row["value"] is not None]  # not an instruction peak that is not there
    for row in rows:
        row.update({key: row[key] * factor for key in ("value", "ci_low", "ci_high")})
    names = [re.sub(r"[^a-z0-9]+", "-", key[name].lower()).strip("-") for name in ("processor", "rooflm", "measuring")]
    path = cache / "rooflm" / f"ceilings-{names[0]}-{key['threads']}-threads-{names[1]}-{names[2]}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"key": key, "ceilings": rows}))


class Profile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="rooflm-profile-"))
        # Ceilings of a machine ten times as fast: other tests may have the processors now and not later. No step beats those.
        cls.environment = dict(os.environ, XDG_CACHE_HOME=str(cls.folder / "cache"))
        make_ceilings(cls.folder / "cache", cls.rooflm, 10)
        cls.record = cls.folder / "a.rooflm"
        cls.measure(cls.record)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def test_without_sizes_of_caches_memory_limits_nothing(self):
        hidden = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs none /sys/devices/system/cpu/cpu0/cache && exec "$@"', "sh"]
        if not shutil.which("unshare") or subprocess.run([*hidden, "true"], capture_output=True, check=False).returncode:
            self.skipTest("no namespaces of mounts here, or no sizes of caches to hide")
        record = self.folder / "no_caches.rooflm"
        for command in (["profile", *SMALL, *QUICK, "-o", record, "--view", "overview"], ["verify", record]):
            result = subprocess.run([*hidden, BINARY, *map(str, command)], capture_output=True, text=True, timeout=TIMEOUT, env=self.environment, check=False)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        with sqlite3.connect(record) as db:
            self.assertEqual(db.execute("SELECT DISTINCT source FROM ceiling WHERE level = 'DRAM'").fetchall(),
                             [("measured, sizes of caches unknown",)])
            self.assertEqual(db.execute("SELECT COUNT(*) FROM prediction WHERE bound = 'DRAM'").fetchone(), (0,))

    @classmethod
    def rooflm(cls, *arguments):
        return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT,
                              env=cls.environment, check=False)

    @classmethod
    def measure(cls, record, *more):
        result = cls.rooflm("profile", *SMALL, *QUICK, "--engine", "eager,fused", "-o", record, *more)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def ok(self, *arguments):
        result = self.rooflm(*arguments)
        self.assertEqual(result.returncode, 0, f"{arguments}: {result.stderr}")
        return result.stdout

    def fails(self, code, *arguments, says=()):
        result = self.rooflm(*arguments)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stdout} {result.stderr}")
        lines = [line for line in result.stderr.splitlines() if line.startswith("rooflm: ")]
        self.assertEqual(len(lines), 1, result.stderr)
        for text in says:
            self.assertIn(text, lines[0])

    def test_generation(self):
        """What reading prompts takes, and one more token, beside the roof."""
        record = self.folder / "generation.rooflm"
        runs = [*SMALL, "--device", "cpu", "--phase", "prefill,decode", "--batch", "1,3"]
        self.ok("profile", *runs, "--engine", "eager,fused", "--steps", "2", "--warmup", "1", "-o", record)
        answer = json.loads(self.ok("report", record, "--view", "generation", "--format", "json"))
        rows = [row for shown in answer for table in shown["tables"] for row in table["rows"]]
        self.assertEqual(len(rows), 8)
        for phase, tokens in (("prefill", 32), ("decode", 1)):
            of_phase = sorted((row for row in rows if row["phase"] == phase), key=lambda row: row["flop"])
            for one, three in ((of_phase[0], of_phase[2]), (of_phase[1], of_phase[3])):
                self.assertEqual(three["flop"], 3 * one["flop"])
                self.assertTrue(one["bytes"] < three["bytes"] < 3 * one["bytes"], "weights are read once for all texts")
                for row, texts in ((one, 1), (three, 3)):
                    self.assertAlmostEqual(row["tokens_per_s"] * row["step_s"], texts * tokens)
            self.assertEqual(of_phase[0]["bytes"], of_phase[1]["bytes"], "what is read is the same for both engines")
        bench = json.loads(self.ok("report", record, "--view", "bench", "--format", "json"))[0]["tables"][0]["rows"]
        self.assertEqual({row["loss"] for row in bench}, {None})
        self.ok("verify", record)
        heads = {}
        for phase in ("forward", "prefill", "decode"):
            ops = json.loads(self.ok("program", *SMALL, "--phase", phase, "--format", "json"))["ops"]
            heads[phase] = sum(op["matmul_flop"] for op in ops if op["scope"] == "lm_head")
        self.assertEqual(heads, {"forward": 32 * heads["decode"], "prefill": heads["decode"], "decode": heads["decode"]})
        for refused in (["profile", *runs, "--data", "x.bin"], ["program", *SMALL, "--phase", "decode", "--inference"],
                        ["bench", *SMALL, "--phase", "decode", "--grad-accum", "2"], ["bench", *SMALL, "--phase", "prefill", "--pp", "2"]):
            self.assertEqual(self.rooflm(*refused).returncode, 2, refused)

    def test_parts_of_runs(self):
        parts = self.folder / "parts.rooflm"
        self.ok("profile", *SMALL, "--steps", "2", "--warmup", "1", "--device", "cpu", "--phase", "step,forward", "-o", parts, "--view",
                "bench")

        def rows(view, *arguments):
            return json.loads(self.ok("report", parts, "--view", view, "--format", "json", *arguments))[0]["tables"][0]["rows"]
        forward = rows("blocks", "--run", "2")
        self.assertEqual({row["phase"] for row in forward}, {"forward"}, "a run of the forward pass alone")
        self.assertIn("of kernels", self.ok("report", parts, "--view", "attention", "--run", "1"))
        shown = self.ok("report", parts, "--view", "attention", "--run", "1", "--phase", "forward")
        self.assertIn("of shown", shown)
        self.assertNotIn("of kernels", shown)
        self.assertEqual([row["status"] for row in rows("bench")], ["success", "success"])
        self.assertIsNone(rows("bench")[1]["mfu"], "MFU is of training steps")
        one_layer = rows("ops", "--run", "1", "--scope", "h.1", "--phase", "backward")
        self.assertTrue(one_layer and {row["phase"] for row in one_layer} == {"backward"})
        all_layers = rows("ops", "--run", "1", "--phase", "backward")
        self.assertGreater(sum(row["instances"] for row in all_layers), sum(row["instances"] for row in one_layer))
        self.assertIn("not in the record, which has ", self.rooflm("report", parts, "--scope", "h.7").stderr)
        self.ok("verify", parts)
        compared = json.loads(self.ok("compare", parts, parts, "--phase", "forward", "--run", "1", "--format", "json"))
        self.assertTrue(compared and all(row["subject"].split("/")[0] == "forward" for row in compared), compared)

    def test_the_tutorial_runs(self):
        """Its commands as they are written, on a smaller model: sizes that they do not name come from the environment."""
        text = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "why_is_my_step_slow.md").read_text()
        commands = re.findall(r"^\$ rooflm (.*)$", text, re.MULTILINE)
        self.assertGreater(len(commands), 5)
        small = {"LAYERS": 1, "D_MODEL": 32, "D_FF": 64, "HEADS": 2, "VOCAB": 64, "DEVICE": "cpu"}
        environment = dict(self.environment, **{f"ROOFLM_{name}": str(value) for name, value in small.items()})
        with tempfile.TemporaryDirectory() as folder:
            for command in commands:
                if "--html" in command and not self.has_page():
                    continue
                result = subprocess.run([BINARY, *command.split()], capture_output=True, text=True, timeout=120, env=environment,
                                        cwd=folder, check=False)
                self.assertEqual(result.returncode, 0, f"{command}: {result.stderr}")

    def has_page(self):
        """Whether this binary was built with the page."""
        return self.rooflm("report", self.record, "--html", "-").returncode != 5

    def test_a_study_says_its_question_and_answer(self):
        page = ["--html", self.folder / "blocks.html"] if self.has_page() else []
        out = self.ok("study", "blocks", "--layers", "1", "--d-model", "32", "--d-ff", "64", "--heads", "2", "--vocab", "64", "--batch",
                      "1", "--seq", "8,16", "--steps", "2", "--device", "cpu", *page)
        self.assertIn("Which block of a layer takes the time", out)
        self.assertRegex(out, r"scores, softmax and values take [0-9.]+% of forward at T=8 and [0-9.]+% at T=16; feed_forward ")
        if page:
            self.assertRegex(page[1].read_text(), r'"answer": ?"scores, softmax')

    def test_the_record_holds_the_step(self):
        with sqlite3.connect(self.record) as db:
            runs = db.execute("SELECT id, value, status FROM run JOIN config ON run = id AND key = 'engine'").fetchall()
            self.assertEqual([(engine, status) for _, engine, status in runs],
                             [("eager", "success"), ("fused", "success")])
            for run, _, _ in runs:
                ops, = db.execute("SELECT COUNT(*) FROM op WHERE run = ?", (run,)).fetchone()
                events, steps = db.execute("SELECT COUNT(*), COUNT(DISTINCT step) FROM event WHERE run = ?",
                                           (run,)).fetchone()
                self.assertEqual(events, ops * steps)
                self.assertGreaterEqual(steps, 3)
                flop, = db.execute("SELECT SUM(matmul_flop) FROM op WHERE run = ?", (run,)).fetchone()
                fact, = db.execute("SELECT value FROM fact WHERE run = ? AND key = 'matmul_flop'", (run,)).fetchone()
                self.assertEqual(flop, fact)
            self.assertTrue(db.execute("SELECT value FROM meta WHERE key = 'finished_utc'").fetchone())
        self.assertEqual([path.name for path in self.folder.glob("a.rooflm*")], ["a.rooflm"])

    def test_it_obeys_its_laws(self):
        self.ok("verify", self.record)

    def test_a_phase_needs_what_all_its_ops_need(self):
        """Updates without clipping, too, and gradients that only they read: a processor runs nothing beside the rest."""
        record = self.folder / "unclipped.rooflm"
        self.ok("profile", *SMALL, *QUICK, "--clip", "0", "-o", record)
        with sqlite3.connect(record) as db:
            of_ops = dict(db.execute("SELECT phase, SUM(prediction.value) FROM op JOIN prediction ON prediction.run = op.run "
                                     "AND subject = 'op:' || op AND quantity = 'roof_s' GROUP BY phase"))
            of_phases = dict(db.execute("SELECT SUBSTR(subject, 7), value FROM prediction WHERE subject LIKE 'phase:%'"))
        self.assertEqual(sorted(of_phases), ["backward", "forward", "optimizer"])
        for phase, seconds in of_phases.items():
            # Where the system does not say how large caches are, ops without matmuls have no roof: 0.
            self.assertAlmostEqual(seconds, of_ops[phase], delta=1e-6 * of_ops[phase], msg=phase)

    def test_ceilings_that_a_step_beats_are_measured_again(self):
        cache = self.folder / "slow-cache"
        make_ceilings(cache, self.rooflm, 1e-5)
        path = self.folder / "raised.rooflm"
        result = subprocess.run([BINARY, "profile", *SMALL, *QUICK, "--engine", "eager,fused", "-o", path], capture_output=True,
                                text=True, timeout=300, env=dict(os.environ, XDG_CACHE_HOME=str(cache)), check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("measured times beat the ceilings of", result.stderr)
        with sqlite3.connect(path) as db:
            rows = db.execute("SELECT value FROM ceiling WHERE what = 'matmul' AND dtype = 'fp32' AND threads = "
                              "(SELECT value FROM config WHERE key = 'threads')").fetchall()
            self.assertTrue(len(rows) == 1 and rows[0][0] > 1e8, rows)  # one set of ceilings
            self.assertEqual(db.execute("SELECT value FROM fact WHERE key = 'peak_flop_per_s'").fetchall(), 2 * rows)
            self.assertEqual(db.execute("SELECT COUNT(*) FROM prediction WHERE subject = 'step'").fetchone(), (2,))

    def test_verify_finds_what_was_broken(self):
        broken = self.folder / "broken.rooflm"
        shutil.copy(self.record, broken)
        with sqlite3.connect(broken) as db:
            db.execute("UPDATE op SET matmul_flop = matmul_flop + 1 WHERE kind = 'matmul'")
        result = self.rooflm("verify", broken)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("flop", (result.stdout + result.stderr).lower())

    def test_every_view_and_format(self):
        views = "overview,phases,blocks,ops,classes,roofline,gap,instances,attention,memory,saved,allocator,samples," \
                "sweep,growth,precision,overhead,training,input,cells"
        self.assertIn("Blocks", self.ok("report", self.record, "--view", views))
        for view in json.loads(self.ok("report", self.record, "--view", views, "--format", "json")):
            self.assertTrue(view["title"] and view["note"])
        self.assertIn("<svg" if "<svg" in self.ok("report", self.record, "--format", "md") else "data:image/svg",
                      self.ok("report", self.record, "--format", "md", "--view", "blocks,memory"))
        self.fails(2, "report", self.record, "--view", "blok", says=["unknown view 'blok'", "did you mean 'blocks'"])

    def test_only_the_engine_with_an_arena_shows_one(self):
        def facts(run):
            view = json.loads(self.ok("report", self.record, "--view", "allocator", "--run", run, "--format", "json"))[0]
            return {row["what"] for row in view["tables"][0]["rows"]}
        eager, fused = facts("1"), facts("2")
        self.assertLessEqual({"allocator_peak_bytes", "fragmentation"}, eager)
        self.assertFalse(eager & {"arena_bytes", "live_bytes_peak"})
        self.assertLessEqual({"arena_bytes", "live_bytes_peak", "fragmentation"}, fused)

    def test_the_page(self):
        page = self.folder / "page.html"
        result = self.rooflm("report", self.record, "--html", page)
        if result.returncode == 5:
            self.skipTest(result.stderr.strip())
        self.assertEqual(result.returncode, 0, result.stderr)
        text = page.read_text(encoding="utf-8")
        self.assertLess(len(text), 5_000_000)
        self.assertIn('id="rooflm-data"', text)
        self.assertIn("feed_forward", text)

    def test_pictures_beside_markdown(self):
        pictures = self.folder / "pictures"
        text = self.ok("report", self.record, "--view", "phases,memory", "--format", "md", "--charts", pictures)
        linked = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
        self.assertEqual(len(linked), len(list(pictures.iterdir())))
        self.assertGreaterEqual(len(linked), 2)
        for name in linked:
            self.assertEqual(xml.parse(name).getroot().tag, "{http://www.w3.org/2000/svg}svg")

    def test_the_model_is_drawn(self):
        pictures = self.folder / "drawing"
        view = json.loads(self.ok("report", self.record, "--view", "model", "--format", "json", "--charts", pictures))[0]
        rows = {row["block"]: row for row in view["tables"][0]["rows"]}
        qkv = rows["attention/qkv"]
        self.assertEqual((qkv["times"], qkv["reads"]), (2, "ln1"))
        self.assertRegex(qkv["source"], r"^src/model/forward\w*\.cpp:\d+$")
        self.assertIn("of the layer before", rows["ln1"]["reads"])
        self.assertEqual(view["charts"][0]["kind"], "graph")
        svg = next(pictures.glob("model*.svg")).read_text()
        self.assertEqual(xml.fromstring(svg).tag, "{http://www.w3.org/2000/svg}svg")
        self.assertIn("layer x 2", svg)

    def test_operations_are_formulas(self):
        rows = json.loads(self.ok("report", self.record, "--view", "operations", "--format", "json"))[0]["tables"][0]["rows"]
        formulas = {row["part"]: row["operations"] for row in rows if row["phase"] == "forward"}
        self.assertTrue(formulas["attention/qkv"].startswith("2 x 2 B T C 3C"), formulas)
        self.assertTrue(formulas["feed_forward/fc2"].startswith("2 x 2 B T F C"), formulas)
        self.assertEqual([row["part"] for row in rows if row["operations"] is None], [], "every block of the model has one")

    def test_long_tables_are_cut_for_people_only(self):
        def rows(*options):
            tables = json.loads(self.ok("report", self.record, "--view", "ops", "--format", "json", *options))[0]["tables"]
            return len(tables[0]["rows"])
        cut = self.ok("report", self.record, "--view", "ops", "--top", "1")
        self.assertIn("more kernels take", cut)
        self.assertEqual(rows(), rows("--top", "1"))
        self.fails(2, "report", self.record, "--top=-1", says=["--top"])

    def test_the_page_replaces_nothing_unasked(self):
        letter = self.folder / "letter.html"
        letter.write_text("dear")
        result = self.rooflm("report", self.record, "--html", letter)
        if result.returncode == 5:
            self.skipTest(result.stderr.strip())
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("letter.html", result.stderr)
        self.assertEqual(letter.read_text(), "dear")
        self.ok("report", self.record, "--html", letter, "--overwrite")
        self.fails(3, "report", self.record, "--html", letter, says=["letter.html", "--overwrite"])

    def test_a_record_on_standard_input(self):
        def report(data, *arguments):
            return subprocess.run([BINARY, "report", "-", *arguments], input=data, capture_output=True, timeout=TIMEOUT, env=self.environment, check=False)
        shown = report(self.record.read_bytes(), "--view", "phases", "--format", "csv")
        self.assertEqual(shown.stdout.decode(), self.ok("report", self.record, "--view", "phases", "--format", "csv"), shown.stderr)
        for data, code in ((b"", 3), (b"no record", 3)):
            self.assertEqual(report(data).returncode, code)
        self.assertEqual(report(b"", "-").returncode, 2)

    def test_view_opens_the_page(self):
        if not self.has_page():
            self.skipTest("built without the page")
        browser = self.folder / "browser"
        browser.write_text(f'#!/bin/sh\necho "$1" > "{self.folder}/opened.tmp" && mv "{self.folder}/opened.tmp" "{self.folder}/opened"\n')
        browser.chmod(0o755)
        environment = dict(self.environment, BROWSER=f"{browser}:other")
        for _ in range(2):  # the page of before is replaced
            result = subprocess.run([BINARY, "view", self.record], capture_output=True, text=True, timeout=TIMEOUT, env=environment, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
        deadline = time.monotonic() + 60
        while not (self.folder / "opened").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        page = pathlib.Path((self.folder / "opened").read_text().strip())
        self.assertEqual(page, self.folder / "cache/rooflm/pages/a.rooflm.html")
        self.assertIn("<html", page.read_text()[:1000])
        missing = subprocess.run([BINARY, "view", self.record], capture_output=True, text=True, timeout=TIMEOUT, env=dict(environment, BROWSER="/no/browser"), check=False)
        self.assertEqual(missing.returncode, 0)
        self.assertIn("there is no /no/browser here", missing.stderr)
        self.fails(2, "view")
        self.fails(3, "view", self.folder / "missing.rooflm", says=["missing.rooflm"])

    def test_wrong_records(self):
        text = self.folder / "text.rooflm"
        text.write_text("not a record")
        half = self.folder / "half.rooflm"
        half.write_bytes(self.record.read_bytes()[:5000])
        newer = self.folder / "newer.rooflm"
        shutil.copy(self.record, newer)
        with sqlite3.connect(newer) as db:
            db.execute("PRAGMA user_version = 99")
        foreign = self.folder / "foreign.rooflm"
        with sqlite3.connect(foreign) as db:
            db.execute("CREATE TABLE t (x)")
        for path in (text, half, newer, foreign, self.folder / "nowhere.rooflm", self.folder):
            for command in (["report", path], ["verify", path], ["compare", self.record, path]):
                self.fails(3, *command, says=[path.name])

    def test_a_kept_file_is_not_lost(self):
        before = self.record.read_bytes()
        self.fails(3, "profile", *SMALL, *QUICK, "-o", self.record, says=["a.rooflm"])
        self.fails(3, "profile", *SMALL, *QUICK, "-o", "/nowhere/x.rooflm", says=["/nowhere/x.rooflm"])
        self.assertEqual(self.record.read_bytes(), before)
        self.fails(2, "profile", *SMALL, "--view", "nope", "-o", self.folder / "never.rooflm", says=["nope"])
        self.assertFalse((self.folder / "never.rooflm").exists())

    def test_out_of_memory_is_a_run(self):
        result = self.rooflm("profile", *SMALL, *QUICK, "--seq", "32,64", "--memory-limit", "1500kB", "--view", "sweep")
        self.assertIn("oom", result.stdout)
        self.assertIn(result.returncode, (0, 4))

    def test_compare(self):
        other = self.folder / "b.rooflm"
        self.measure(other)
        text = self.rooflm("compare", self.record, other)
        self.assertEqual(text.returncode, 0, text.stderr)
        self.assertRegex(text.stdout, "FASTER|SLOWER|SAME|UNSURE")
        rows = json.loads(self.ok("compare", self.record, other, "--format", "json"))
        self.assertTrue(any("verdict" in row for row in rows))
        plain = self.folder / "formats.rooflm"
        self.ok("study", "formats", "-o", plain)
        self.fails(3, "compare", self.record, plain)

    def test_compare_is_a_gate(self):
        steady, slow = self.folder / "steady.rooflm", self.folder / "slow.rooflm"
        result = self.rooflm("profile", *SMALL, "--min-steps", "12", "--max-steps", "12", "--max-seconds", "60",
                             "-o", steady)
        self.assertEqual(result.returncode, 0, result.stderr)
        with sqlite3.connect(steady) as db:  # times that no other program has disturbed
            db.execute("UPDATE sample SET seconds = 0.01 + 0.00001 * (step % 5)")
            db.execute("DELETE FROM fact WHERE key = 'others_share'")
        shutil.copy(steady, slow)
        with sqlite3.connect(slow) as db:
            db.execute("UPDATE sample SET seconds = seconds * 1.1")
        gate = ["--fail-slower", "3%"]
        self.assertEqual(self.rooflm("compare", steady, slow, *gate).returncode, 0)  # one run of each: it may be chance
        self.assertEqual(self.rooflm("compare", steady, slow, *gate, "--restart", "2%").returncode, 1)
        self.assertEqual(self.rooflm("compare", slow, steady, *gate, "--restart", "2%").returncode, 0)
        before, after, empty = (self.folder / name for name in ("before", "after", "empty"))
        for folder, record in ((before, steady), (after, slow), (empty, None)):
            folder.mkdir()
            for i in range(4 if record else 0):
                shutil.copy(record, folder / f"{i}.rooflm")
        self.assertEqual(self.rooflm("compare", before, after, *gate).returncode, 1)
        self.assertEqual(self.rooflm("compare", after, before, *gate).returncode, 0)
        self.assertEqual(self.rooflm("compare", f"{before}/0.rooflm,{before}/1.rooflm", before, *gate).returncode, 0)
        self.fails(3, "compare", before, empty, says=["empty", "no run records"])

    def test_a_benchmark_keeps_its_samples(self):
        one, two = self.folder / "one.rooflm", self.folder / "two.rooflm"
        for path in (one, two):
            self.ok("bench", *SMALL, "--engine", "eager,fused", "--warmup", "1", "--steps", "6", "-o", path)
        with sqlite3.connect(one) as db:
            self.assertEqual(db.execute("SELECT status, COUNT(*) FROM run GROUP BY 1").fetchall(), [("success", 2)])
            self.assertEqual(db.execute("SELECT COUNT(*) FROM sample WHERE phase = 'step'").fetchone()[0], 12)
            self.assertEqual(db.execute("SELECT COUNT(*) FROM ceiling").fetchone()[0], 1)
        self.ok("verify", one)
        self.assertIn("MFU", self.ok("report", one, "--view", "overview"))
        rows = json.loads(self.ok("compare", one, two, "--format", "json"))
        self.assertEqual(len(rows), 8)  # two engines: the step and its three phases
        self.fails(3, "bench", *SMALL, "--steps", "1", "-o", one, says=["one.rooflm", "overwrite"])
        planned = self.folder / "planned.rooflm"
        self.ok("bench", *SMALL, "--device", "null", "-o", planned)
        with sqlite3.connect(planned) as db:
            self.assertEqual(db.execute("SELECT status FROM run").fetchone()[0], "planned")

    def test_every_study_runs_and_obeys_its_laws(self):
        text = self.folder / "text.txt"
        text.write_text("the quick brown fox jumps over the lazy dog\n" * 500)
        data = self.folder / "data"
        self.ok("data", "prepare", text, "-o", data, "--vocab", "260")
        model = ["--layers", "1", "--d-model", "64", "--d-ff", "128", "--vocab", "384", "--batch", "2",
                 "--min-steps", "4", "--max-steps", "4", "--max-seconds", "5"]
        own = {"limits": [], "gemm": ["--n", "64", "--count", "2"], "attention": ["--seq", "64", "--head-dim", "16"],
               "formats": [], "quantization": ["--layers", "1", "--d-model", "128", "--d-ff", "256", *model[6:], "--seq", "32"],
               "serving": [*model[:8], "--batch", "2", "--seq", "16", "--requests", "6", "--prompt-tokens", "4-8",
                           "--new-tokens", "2-4"]}
        for study in json.loads(self.ok("study", "list", "--format", "json")):
            with self.subTest(study=study["name"]):
                path = self.folder / f"study-{study['name']}.rooflm"
                options = own.get(study["name"], own.get(study["kind"], [*model, "--seq", "16,32"]))
                if options[:1] == model[:1] and study["kind"] != "serving":
                    options = [*options, "--heads", "2,4" if study["name"] == "heads" else "2"]
                    if study["kind"] == "profile":  # as study --all has it for all of them
                        options += ["--data", data]
                shown = self.ok("study", study["name"], *options, "-o", path)
                self.assertNotIn("Nothing to show", shown)
                law = self.rooflm("verify", path)
                self.assertEqual(law.returncode, 0, law.stdout)

    def test_serving_at_given_rates_and_lengths(self):
        small = ["study", "serving", "--layers", "1", "--d-model", "64", "--d-ff", "128", "--heads", "2", "--vocab", "256", "--batch", "2",
                 "--seq", "24", "--schedule", "fcfs"]
        lengths = self.folder / "lengths.csv"
        lengths.write_text("20,3\n4,1\n\n")
        record = self.folder / "serving.rooflm"
        out = self.ok(*small, "--requests", "6", "--lengths", lengths, "--rate", "200,inf", "--users", "2,1", "-o", record)
        self.assertIn("saturates: fcfs at", out)
        loads, saturation, users = json.loads(self.ok("report", record, "--view", "serving", "--format", "json"))[0]["tables"]
        self.assertEqual([row["rate"] for row in loads["rows"]], [200, "all at once"])
        for row in loads["rows"]:
            self.assertEqual(row["requests"], 6)
            self.assertLessEqual(row["ttft_median_s"], row["ttft_p99_s"])
            self.assertLessEqual(row["batch_share"], 1)
        self.assertEqual(sum(row["tokens"] for row in users["rows"][:2]), 3 * (3 + 1))
        self.assertEqual(len(saturation["rows"]), 1)
        self.fails(2, *small, "--prompt-tokens", "16-20", "--new-tokens", "8", says=["--seq 24", "up to 20"])
        self.fails(2, *small, "--prompt-tokens", "20-16", says=["--prompt-tokens 20-16"])
        self.fails(2, *small, "--schedule", "fiar", says=["unknown schedule 'fiar'", "did you mean 'fair'"])
        self.fails(2, *small, "--rate", "0", says=["--rate"])
        lengths.write_text("20,3\n4;1\n")
        self.fails(3, *small, "--lengths", lengths, says=["lengths.csv:2", "4;1"])
        self.fails(2, *small, "--device", "null", says=["null"])

    def test_studies(self):
        names = [row["name"] for row in json.loads(self.ok("study", "list", "--format", "json"))]
        self.assertIn("context", names)
        rows = json.loads(self.ok("study", "formats", "--n", "49152,12288", "--format", "json"))[0]["tables"][0]["rows"]
        bf16 = next(row for row in rows if row["format"] == "bf16")
        self.assertEqual((bf16["layout"], bf16["matrix"]), ("S EEEEEEEE MMMMMMM", 2 * 49152 * 12288))
        self.assertIn("flash", self.ok("study", "attention_sweep", "--seq", "64", "--head-dim", "16"))
        self.ok("study", "formats", "--n", "16,8", "--max-steps", "2", "--max-seconds", "0.1", "--layers", "1")  # as study --all may be told
        tables = json.loads(self.ok("study", "formats", "--steps", "3", "--layers", "1", "--format", "json"))[0]["tables"]
        of_training = {key: table["rows"] for table in tables for key in ("operand", "step") if key in table["rows"][0]}
        self.assertEqual({key: len(rows) for key, rows in of_training.items()}, {"operand": 4 * 3, "step": 3})
        self.assertIn("fp8 is left out", self.rooflm("study", "formats", "--device", "null:a100-sxm").stderr)
        self.assertIn("looped", self.ok("study", "gemm", "--n", "64", "--count", "2"))
        self.assertIn("planned", self.ok("study", "limits", "--model", "tiny", "--batch", "1"))
        out = self.ok("study", "warmup", "--layers", "1", "--vocab", "256", "--seq", "16", "--max-steps", "3",
                      "--warmup", "0,1", "--format", "csv")
        self.assertIn("tiny", out)
        out = self.ok("study", "decode", "--layers", "1", "--vocab", "256", "--seq", "16", "--batch", "1,2", "--max-steps", "3")
        self.assertRegex(out, r"B=2: \d+ tokens/s, .* each, \d+% of the roof")
        self.fails(2, "study", "contxt", says=["unknown study 'contxt'", "did you mean 'context'"])
        mine = self.folder / "mine.toml"
        mine.write_text('title = "t"\nquestion = "q"\nviews = ["sweep"]\n[options]\nsek = 3\n')
        self.fails(3, "study", mine, says=["mine.toml:5", "unknown option 'sek'", "did you mean 'seq'"])
        self.fails(2, "study", "input", says=["--data"])


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
