#!/usr/bin/env python3
"""What all commands share: defaults from files and the environment, how much is said, columns, colours, standard output as a
target, dry runs, parts of records.

Usage: test_options.py BINARY [unittest options]"""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

BINARY = ""
SMALL = ["--model", "tiny", "--layers", "1", "--d-model", "32", "--d-ff", "64", "--heads", "2", "--vocab", "64",
         "--batch", "1", "--seq", "8"]
BENCH = ["bench", *SMALL, "--no-peak", "--steps", "2", "--warmup", "0"]


class Options(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="rooflm-options-"))
        cls.record = cls.shared / "two.rooflm"
        environment = cls.environment(cls.shared)
        subprocess.run([BINARY, *BENCH, "--engine", "eager,fused", "-o", cls.record], env=environment, check=True,
                       capture_output=True, timeout=120, cwd=cls.shared)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared)

    @staticmethod
    def environment(home, **more):
        kept = {key: value for key, value in os.environ.items() if not key.startswith("ROOFLM_") and key != "COLUMNS"}
        return dict(kept, HOME=str(home), XDG_CONFIG_HOME=str(home / "config"), XDG_CACHE_HOME=str(home / "cache"), **more)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="rooflm-options-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_binary(self, *arguments, code=0, variables=None, text=True):
        result = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=text, timeout=120, check=False,
                                cwd=self.folder, env=self.environment(self.folder, **(variables or {})))
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stderr}")
        return result

    def in_terminal(self, *arguments, variables=None):
        """What a terminal of 80 columns gets."""
        leader, follower = pty.openpty()
        process = subprocess.Popen([BINARY, *map(str, arguments)], stdout=follower, stderr=subprocess.DEVNULL, cwd=self.folder,
                                   env=self.environment(self.folder, TERM="xterm", COLUMNS="80", **(variables or {})))
        os.close(follower)
        out = b""
        while select.select([leader], [], [], 60)[0]:
            try:
                part = os.read(leader, 65536)
            except OSError:
                break
            if not part:
                break
            out += part
        os.close(leader)
        self.assertEqual(process.wait(60), 0)
        return out.decode().replace("\r\n", "\n")

    def steps_of(self, *arguments, variables=None):
        rows = json.loads(self.run_binary("bench", *SMALL, "--no-peak", "--warmup", "0", "--format", "json", *arguments,
                                          variables=variables).stdout)
        return rows[0]["steps"]

    def test_a_pipe_in_place_of_settings_is_not_waited_for_for_ever(self):
        os.mkfifo(self.folder / "rooflm.toml")
        writer = os.open(self.folder / "rooflm.toml", os.O_RDWR)  # it is open, and silent
        self.addCleanup(os.close, writer)
        os.write(writer, b"steps = ")
        result = self.run_binary(*BENCH, code=3)
        self.assertIn("rooflm.toml: it is a pipe, and nobody has written to it for 10 seconds", result.stderr)
        os.remove(self.folder / "rooflm.toml")
        os.mkfifo(self.folder / "lengths")
        silent = os.open(self.folder / "lengths", os.O_RDWR)
        self.addCleanup(os.close, silent)
        result = self.run_binary("study", "serving", "--lengths", self.folder / "lengths", code=3)
        self.assertIn("lengths: it is a pipe, and nobody has written to it for 10 seconds", result.stderr)

    def test_errors_of_use_say_what_to_do(self):
        for words, says in ((["compare"], "compare: the argument a is missing (`rooflm compare --help` shows its use)"),
                            (["plan", "--scaling"], "plan: --scaling needs a value: strong|weak"),
                            (["bench", "--modle", "x"], "unknown option '--modle'; did you mean '--model'? (`rooflm bench --help` lists all)")):
            self.assertIn(says, self.run_binary(*words, code=2).stderr)

    def test_a_sweep_of_hours_is_asked_for(self):
        result = self.run_binary("bench", *SMALL, "--d-ff", "1:3000:1", "--max-seconds", "1", code=2)
        self.assertRegex(result.stderr, "3000 configurations, which take about 0.83 hours.*--yes")

    def test_nothing_that_fits_is_said_on_standard_error(self):
        result = self.run_binary(*BENCH, "--memory-limit", "1KB", code=4)
        self.assertRegex(result.stderr, "rooflm: the configuration does not fit in memory")
        self.assertIn("oom", result.stdout)

    def test_defaults_come_from_files_and_the_environment(self):
        user = self.folder / "config" / "rooflm"
        user.mkdir(parents=True)
        (user / "rooflm.toml").write_text("[bench]\nsteps = 3\n")
        self.assertEqual(self.steps_of(), 3)
        (self.folder / "rooflm.toml").write_text("# here\nsteps = 4\n[profile]\nsteps = 9\n")
        self.assertEqual(self.steps_of(), 4, "the working directory wins over the user's file")
        self.assertEqual(self.steps_of(variables={"ROOFLM_STEPS": "5"}), 5, "the environment over files")
        self.assertEqual(self.steps_of("--steps", "6", variables={"ROOFLM_STEPS": "5"}), 6, "and what is typed over all")
        self.assertIn("--steps 4: from rooflm.toml:2", self.run_binary(*BENCH[:-4], "-v", "--warmup", "0").stderr)

    def test_former_names_of_options_work(self):
        study = ('title = "One"\nquestion = "What?"\nviews = ["sweep"]\n[options]\nmodel = "tiny"\nsearch-products = "%s"\n')
        (self.folder / "mine.toml").write_text(study % "none")
        self.run_binary("study", "mine.toml", "--dry-run")
        for arguments in (["--search-products", "none"], ["--search-products=kept"], ["--autotune", "full"]):
            self.run_binary("bench", *SMALL, "--dry-run", *arguments)
        says = "unknown --autotune 'some'"
        self.assertIn(says, self.run_binary("bench", *SMALL, "--dry-run", "--search-products", "some", code=2).stderr)
        error = self.run_binary("bench", *SMALL, "--dry-run", variables={"ROOFLM_SEARCH_PRODUCTS": "some"}, code=3).stderr
        self.assertIn(says, error)
        self.assertIn("autotune none (ROOFLM_SEARCH_PRODUCTS)",
                      self.run_binary("info", variables={"ROOFLM_SEARCH_PRODUCTS": "none"}).stdout)
        (self.folder / "mine.toml").write_text(study % "some")
        self.assertIn(says, self.run_binary("study", "mine.toml", "--dry-run", code=3).stderr)
        (self.folder / "rooflm.toml").write_text("search-products = 'none'\n")
        self.assertIn("autotune none (rooflm.toml:1)", self.run_binary("info").stdout)
        self.assertNotIn("search-products", self.run_binary("bench", "--help").stdout)

    def test_info_shows_defaults(self):
        (self.folder / "rooflm.toml").write_text("threads = 1\n[bench]\noverwrite = true\n")
        text = self.run_binary("info", variables={"ROOFLM_DTYPE": "bf16", "ROOFLM_NO_SUCH": "x"}).stdout
        self.assertIn("threads 1 (rooflm.toml:1)", text)
        self.assertIn("bench: overwrite yes (rooflm.toml:3)", text)
        self.assertIn("dtype bf16 (ROOFLM_DTYPE)", text)
        self.assertNotIn("no-such", text)
        info = json.loads(self.run_binary("info", "--format", "json").stdout)
        self.assertEqual([file["exists"] for file in info["config_files"]], [False, True])
        self.assertEqual(info["defaults"][1], {"command": "bench", "option": "overwrite", "value": "yes", "source": "rooflm.toml:3"})

    def test_wrong_files_are_named(self):
        for text, says in (("stepps = 3\n", "rooflm.toml:1: unknown option 'stepps'; did you mean 'steps'"),
                           ("\n[bnch]\nsteps = 3\n", "rooflm.toml:2: unknown command 'bnch'; did you mean 'bench'"),
                           ("steps = 3 4\n", "rooflm.toml:1: "),
                           ("[bench]\nsteps = [[1]]\n", "rooflm.toml:2: "),
                           ("[bench]\noverwrite = 'perhaps'\n", "rooflm.toml:2: --overwrite must be yes or no"),
                           ("[bench]\nsteps = 'many'\n", "(from rooflm.toml:2)")):
            with self.subTest(text=text):
                (self.folder / "rooflm.toml").write_text(text)
                self.assertIn(says, self.run_binary("bench", *SMALL, "--no-peak", code=3).stderr)

    def test_the_device_of_plans_is_another(self):
        error = self.run_binary("plan", "--model", "gpt2", "--gpus", "1", code=2, variables={"ROOFLM_DEVICE": "cpu"}).stderr
        self.assertIn("--device is missing: a key of the catalog", error)

    def test_studies_come_before_defaults(self):
        (self.folder / "rooflm.toml").write_text("model = 'gpt2'\nthreads = 1\n")
        rows = json.loads(self.run_binary("study", "warmup", "--dry-run", "--format", "json").stdout)
        self.assertTrue(all(row["run"].startswith("tiny ") and "threads=1" in row["run"] for row in rows), rows)
        typed = json.loads(self.run_binary("study", "warmup", "--model", "gpt2", "--dry-run", "--format", "json").stdout)
        self.assertTrue(all(row["run"].startswith("gpt2 ") for row in typed), typed)

    def test_quiet_and_verbose(self):
        self.assertEqual(self.run_binary(*BENCH, "-q").stderr, "")
        self.assertIn("rooflm: ", self.run_binary(*BENCH, "-q", "--dtype", "fp17", code=2).stderr)
        self.assertRegex(self.run_binary(*BENCH, "-v").stderr, r"bench: [0-9.]+ m?s")
        self.run_binary(*BENCH, "-v", "-q", code=2)

    def test_the_device_is_the_fastest_and_said(self):
        device = json.loads(self.run_binary("info", "--format", "json").stdout)["default_device"]
        self.assertIn(f"device: {device} (", self.run_binary(*BENCH).stderr)
        self.assertNotIn("device: ", self.run_binary(*BENCH, "--device", "cpu").stderr)

    def test_ways_of_collectives_are_for_gpus(self):
        words = [*BENCH, "--device", "cpu", "--threads", "1"]
        self.assertIn("copy-engine", self.run_binary(*words, "--collectives", "copy-engin", code=2).stderr)
        self.run_binary("launch", "-n", 2, "--", *words, "--overlap", "off", "--collectives", "auto")
        self.run_binary("launch", "-n", 2, "--", *words, "--overlap", "off", "--collectives", "default")
        for command in (words, ["comm", "--device", "cpu", "--size", "4KiB"]):
            said = self.run_binary("launch", "-n", 2, "--", *command, "--collectives", "copy-engine", code=2)
            self.assertIn("--collectives copy-engine is for GPUs", said.stderr)
        self.run_binary("launch", "-n", 2, "--", *words, "--overlap", "off", "--collectives", "peer-memory")
        said = self.run_binary("launch", "-n", 2, "--", *words, "--engine", "eager", "--collectives", "peer-memory", code=2)
        self.assertIn("--collectives peer-memory needs --engine fused", said.stderr)
        said = self.run_binary("launch", "-n", 2, "--", "comm", "--collectives", "peer-memory", code=2)
        self.assertIn("no collectives to time", said.stderr)
        self.assertIn("name a single way", self.run_binary("launch", "-n", 2, "--", "comm", "--collectives", "auto", code=2).stderr)

    def test_help_offers_dtypes_of_this_machine(self):
        def dtypes(*arguments):
            return re.search(r"--dtype\S* ([^\s=]+)", self.run_binary(*arguments).stdout).group(1).split("|")
        here = dtypes("bench", "--help")
        self.assertIn("fp32", here)
        self.assertIn("fp8", here)
        if json.loads(self.run_binary("info", "--format", "json").stdout)["default_device"] == "cpu":
            self.assertNotIn("tf32", here)
        for command in ("gemm", "attention"):  # single ops are not measured in fp8
            self.assertEqual(dtypes(command, "--help"), [name for name in here if name != "fp8"])
        self.assertIn("fp16", self.run_binary("completion", "bash", "--all-devices").stdout)

    def test_columns_of_plans_are_chosen(self):
        plan = ("plan", "--model", "gpt2", "--device", "h100-sxm", "--gpus", "2")
        chosen = self.run_binary(*plan, "--columns", "GPUs,step,gradient_bytes", "--format", "csv").stdout
        self.assertEqual(chosen.splitlines()[0], "gpus,step_s,gradient_bytes")
        self.assertIn("left out to fit", self.run_binary(*plan, variables={"COLUMNS": "80"}).stdout)
        self.assertNotIn("left out", self.run_binary(*plan, "--wide", variables={"COLUMNS": "80"}).stdout)
        term = self.run_binary(*plan, "--explain", "step_s", "--columns", "term", "--format", "csv").stdout
        self.assertEqual(term.splitlines()[0], "term")
        self.assertIn("unknown column 'nope'", self.run_binary(*plan, "--columns", "nope", code=2).stderr)

    def test_steps_are_exact(self):
        self.assertEqual(self.steps_of("--steps", "3"), 3)
        for option in (["--precision", "1"], ["--max-steps", "4"], ["--min-steps", "2"]):
            for command in ("bench", "profile"):
                self.assertIn("--steps is exact", self.run_binary(command, *SMALL, "--steps", "3", *option, code=2).stderr)

    def test_columns_are_chosen(self):
        narrow = self.run_binary("report", self.record, "--view", "bench", variables={"COLUMNS": "80"}).stdout
        wide = self.run_binary("report", self.record, "--view", "bench", "--wide", variables={"COLUMNS": "80"}).stdout
        self.assertIn("left out to fit: ", narrow)
        self.assertLessEqual(max(map(len, narrow.splitlines())), 80)
        self.assertNotIn("left out", wide)
        self.assertGreater(max(map(len, wide.splitlines())), 80)
        for column in ("total", "tokens/s"):
            self.assertRegex(narrow.splitlines()[3], rf"\b{column}", "what a row is read for stays")
        self.assertNotIn("forward_std", narrow.splitlines()[3])
        chosen = self.run_binary("report", self.record, "--view", "bench", "--columns", "engine,step_ms_min,total", "--format", "csv").stdout
        self.assertEqual(chosen.splitlines()[0], "engine,step_ms_min,step_ms_mean")
        error = self.run_binary("report", self.record, "--view", "bench", "--columns", "engin", code=2).stderr
        self.assertIn("unknown column 'engin'; did you mean 'engine'", error)

    def has_page(self):
        """Whether this binary was built with the page."""
        done = subprocess.run([BINARY, "report", self.record, "--html", "-"], capture_output=True, text=True, cwd=self.folder)
        return done.returncode != 5

    def test_colours_are_for_terminals(self):
        arguments = ("report", self.record, "--view", "bench", "--columns", "engine,total")
        self.assertIn("\x1b[1m", self.in_terminal(*arguments))
        self.assertNotIn("\x1b", self.in_terminal(*arguments, variables={"NO_COLOR": "1"}))
        self.assertNotIn("\x1b", self.in_terminal(*arguments, "--format", "csv"))
        self.assertNotIn("\x1b", self.run_binary(*arguments).stdout)

    def test_records_and_pages_go_to_standard_output(self):
        record = self.run_binary(*BENCH, "-o", "-", text=False).stdout
        (self.folder / "piped.rooflm").write_bytes(record)
        with sqlite3.connect(self.folder / "piped.rooflm") as database:
            self.assertEqual(database.execute("select count(*) from run").fetchone(), (1,))
        self.run_binary("verify", "piped.rooflm")
        page = self.run_binary("report", self.record, "--html", "-").stdout if self.has_page() else "<!doctype html></html>"
        self.assertTrue(page.lower().startswith("<!doctype html>") and page.rstrip().endswith("</html>"), page[:200])
        self.assertEqual([path.name for path in self.folder.iterdir() if path.name == "-"], [])
        if self.has_page():
            self.assertIn("are the same file", self.run_binary("profile", *SMALL, "-o", "-", "--html", "-", code=2).stderr)
        self.assertIn("-o -", self.run_binary("import", self.record, "-o", "-", code=2).stderr)

    def test_dry_runs_check_and_do_nothing(self):
        html = ["--html", "a.html"] if self.has_page() else []
        out = self.run_binary("profile", *SMALL, "--seq", "8,16", "-o", "a.rooflm", *html, "--dry-run").stdout
        self.assertRegex(out, r"1 +tiny B=1 T=8")
        self.assertRegex(out, r"2 +tiny B=1 T=16")
        self.assertIn("-o: a.rooflm\n--html: a.html\n" if html else "-o: a.rooflm\n", out)
        self.assertIn("would run", self.run_binary("bench", *SMALL, "--columns", "total", "--dry-run").stdout)
        rows = json.loads(self.run_binary("gemm", "--device", "cpu", "--dry-run", "--format", "json").stdout)
        self.assertEqual(len(rows), 9)
        self.assertEqual(rows[0]["run"], "1 x [1024, 1024] by [1024, 1024] fp32 big on cpu")
        self.run_binary("bench", *SMALL, "-o", self.record, "--dry-run", code=3)
        self.run_binary("attention", "--device", "cpu", "--dry-run")
        self.run_binary("peaks", "--device", "cpu", "--dry-run")
        if html:
            self.run_binary("study", "--all", "--html", "pages", "--dry-run")
        else:
            self.run_binary("study", "--all", "--html", "pages", code=5)
        self.assertIn("would show 2 runs of 1 records", self.run_binary("report", self.record, *html, "--dry-run").stdout)
        out = self.run_binary("export", self.record, "--run", "2", "--format", "openmetrics", "-o", "a.txt", "--dry-run").stdout
        self.assertRegex(out, r"would export run 2, .*fused.*, as openmetrics\nwould write\n-o: a.txt\n")
        out = self.run_binary("record", "-o", "b.rooflm", "--dry-run", "--", "sleep", "1000").stdout
        self.assertIn("would run and record sleep 1000\nwould write\n-o: b.rooflm\n", out)
        self.assertEqual([path.name for path in self.folder.iterdir() if path.name != "cache"], [])

    def test_two_outputs_are_not_one_file(self):
        for more in ([], ["--dry-run"]):
            if not self.has_page():
                break
            result = self.run_binary("report", self.record, "--html", "both", "--charts", "./both", *more, code=2)
            self.assertIn("--html both and --charts ./both are the same file", result.stderr)
        self.assertFalse((self.folder / "both").exists())

    def test_data_is_looked_at_in_dry_runs_too(self):
        (self.folder / "no_shard").write_text("to be or not to be " * 100)
        for command in (["profile", *SMALL], ["study", "input", "--device", "cpu"]):
            error = self.run_binary(*command, "--data", "/nonexist", "--dry-run", code=3).stderr
            self.assertIn("--data /nonexist: No such file or directory", error)
            self.assertIn("no token shard", self.run_binary(*command, "--data", "no_shard", "--dry-run", code=3).stderr)
        self.assertIn("study input needs --data", self.run_binary("study", "input", "--device", "cpu", "--dry-run", code=2).stderr)

    def test_messages_name_what_is_missing(self):
        self.assertIn("study --all needs --html DIR", self.run_binary("study", "--all", code=2).stderr)
        self.assertIn("study --all takes no -o", self.run_binary("study", "--all", "--html", "pages", "-o", "a.rooflm", code=2).stderr)
        for command in (["generate"], ["eval", "--data", self.record]):
            error = self.run_binary(*command, "--model", "nodir", code=2).stderr
            self.assertIn("--model nodir: no such directory; give one with config.json and model.safetensors", error)
        error = self.run_binary("export", self.record, "--format", "hugginface", "-o", "a", code=2).stderr
        self.assertIn("did you mean 'huggingface'?", error)

    def test_help_offers_what_commands_take(self):
        for command in ("plan", "program"):
            self.assertIn("--dtype fp32|bf16x6|tf32|bf16|fp16|fp8", self.run_binary(command, "--help").stdout)
        self.assertIn("in a search 4 per GPU", " ".join(self.run_binary("plan", "--help").stdout.split()))
        self.assertIn("peer-memory: updates read the gradients of other ranks", " ".join(self.run_binary("bench", "--help").stdout.split()))
        names = re.findall(r"^  (\S+) +\S", self.run_binary("report", "--help").stdout.split("Views:")[1].split("\n\n")[0], re.M)
        self.assertIn("plan_scaling", names)
        self.assertIn("plan_against", names)

    def test_a_plan_says_that_another_device_was_measured(self):
        self.run_binary("profile", *SMALL, "--device", "cpu", "--threads", 1, "--max-steps", 2, "--min-steps", 2, "-o", "profile.rooflm")
        for option, record in (("--against", self.record), ("--calibrate", "profile.rooflm")):
            result = self.run_binary("plan", *(SMALL if option == "--calibrate" else []), option, record, "--device", "h100-sxm")
            self.assertIn("measured on cpu, planned for h100-sxm", result.stderr)

    def test_dry_runs_of_data_and_training(self):
        (self.folder / "book.txt").write_text("to be or not to be, that is the question. " * 50)
        out = self.run_binary("data", "prepare", "book.txt", "-o", "data", "--vocab", "300", "--dry-run").stdout
        self.assertIn("would prepare 1 documents, 2.10 kB, with a new vocabulary of 300\nwould write\n-o: data\n", out)
        self.assertIn("learn a vocabulary of 300", self.run_binary("data", "train-tokenizer", "book.txt", "-o", "t.json", "--vocab", "300",
                                                                   "--dry-run").stdout)
        self.run_binary("data", "prepare", "none.txt", "-o", "data", "--dry-run", code=3)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir() if path.name != "cache"), ["book.txt"])
        self.run_binary("data", "prepare", "book.txt", "-o", "data", "--vocab", "300")
        self.run_binary("data", "prepare", "book.txt", "-o", "data", "--dry-run", code=2)
        train = ["train", "--data", "data", "--out", "out", *SMALL[:12], "--steps", "7", "--dry-run"]
        result = self.run_binary(*train)
        self.assertIn("would train 7 steps", result.stderr)
        self.assertRegex(result.stdout, r"1 +tiny B=\d+ T=")
        self.assertIn("--out: out\n", result.stdout)
        self.run_binary(*train, "--lr", "-1", code=2)
        self.assertFalse((self.folder / "out").exists())
        trace = self.folder / "trace.json"
        trace.write_text('{"traceEvents": []}')
        self.assertIn("import trace.json as kineto", self.run_binary("import", "trace.json", "-o", "i.rooflm", "--dry-run").stdout)
        self.run_binary("import", "book.txt", "-o", "i.rooflm", "--dry-run", code=3)
        self.assertFalse((self.folder / "i.rooflm").exists())

    def test_an_option_that_a_study_does_not_read(self):
        for study, option, value in (("blocks", "--lengths", "nope"), ("blocks", "--count", "3"), ("blocks", "--n", "5"),
                                     ("serving", "--n", "5"), ("serving", "--steps", "3"), ("serving", "--data", "x.bin"),
                                     ("gemm", "--seq", "5"), ("attention_sweep", "--n", "5"),
                                     ("formats", "--engine", "eager"), ("formats", "--users", "1")):
            with self.subTest(study=study, option=option):
                result = self.run_binary("study", study, option, *([value] if value else []), "--dry-run", code=2)
                self.assertIn(f"{option} has no meaning for study {study}", result.stderr)
        cpu = ["--device", "cpu", "--dry-run"]
        # How long to measure is asked of any study.
        result = self.run_binary("study", "gemm", "--max-seconds", "1", *cpu)
        self.assertIn("--max-seconds has no meaning for study gemm", result.stderr)
        for study, *options in (("blocks", "--seq", "16", "--steps", "3"), ("gemm", "--n", "64", "--threads", "1"),
                                ("attention_sweep", "--head-dim", "16", "--seq", "64"), ("formats", "--n", "64", "--steps", "3"),
                                ("serving", "--users", "1", "--batch", "2", "--max-seconds", "9")):
            self.run_binary("study", study, *options, *cpu)
        # What is no study's own is left to those that read it: of a file of defaults, and of all studies.
        (self.folder / "rooflm.toml").write_text("[study]\nsteps = 3\n")
        self.run_binary("study", "gemm", *cpu)

    def test_what_does_not_fit_says_what_there_is(self):
        words = ["bench", "--model", "gpt2", "--vocab", 2212, "--layers", 2, "--heads", 2, "--d-model", 160, "--d-ff", 160, "--batch", 8,
                 "--seq", 200, "--dtype", "fp16", "--phase", "forward", "--device", "cpu", "--threads", 1, "--steps", 1, "--warmup", 0,
                 "--no-peak", "--format", "json"]
        large = self.run_binary(*words, "--memory-limit", "1MB", code=4)
        self.assertRegex(large.stderr, r"out of memory: needs [\d.]+ MB.*; the limit is 1.00 MB")
        row = json.loads(self.run_binary(*words).stdout)[0]
        peak, needed = row["peak_bytes"], row["needed_bytes"]
        if peak <= 1.01 * needed:
            self.skipTest("no kernel of this processor takes scratch memory for fp16")
        # What kernels take besides counts, too.
        done = self.run_binary(*words, "--memory-limit", int((peak + needed) / 2), code=4)
        self.assertIn("for kernels; the limit is", done.stderr)

    def test_report_shows_a_part(self):
        def rows(*arguments, view="bench"):
            return json.loads(self.run_binary("report", self.record, "--view", view, "--format", "json",
                                              *arguments).stdout)[0]["tables"][0]["rows"]
        self.assertEqual([row["engine"] for row in rows()], ["eager", "fused"])
        self.assertEqual([row["engine"] for row in rows("--run", "fused")], ["fused"])
        self.assertEqual([row["engine"] for row in rows("--run", "1")], ["eager"])
        phases = {row["phase"] for row in rows("--phase", "forward", view="phases")}
        self.assertEqual(phases, {"forward"})
        self.assertIn("not in the record, which has 1: ", self.run_binary("report", self.record, "--run", "bf17", code=2).stderr)


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv[1]).resolve())
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
