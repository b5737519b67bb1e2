"""rooflm record on programs without a GPU: what passes through, what is left of programs that end badly, PyTorch's marks
on a stand-in for torch, and records of streams."""
import csv
import json
import os
import signal
import struct
import subprocess
import sys
import unittest

import streams
from fake_torch import TRAINING, environment

ROOFLM = os.path.abspath(sys.argv.pop(1))
MARKS = """
import ctypes, os, sys, time
library = ctypes.PyDLL(os.environ["CUDA_INJECTION64_PATH"])
library.rooflm_begin()
library.rooflm_text.argtypes = [ctypes.c_char_p]
name = library.rooflm_text(b"layer")
library.rooflm_begin_step()
for step in range(4):
    library.rooflm_push(name, 3)
    time.sleep(0.002)
    library.rooflm_pop()
    library.rooflm_end_step()
"""


class Record(streams.Case):
    binary = ROOFLM

    def record(self, *command, options=(), **more):
        return self.rooflm("record", "-o", "x.rooflm", *options, "--", *command, **more)

    def names(self):
        # Stacks have numbers for names, as modules of a Sequential do.
        return dict(self.rows("SELECT n.text, COUNT(*) FROM activity a JOIN activity_name n USING (run, name) "
                              "WHERE n.kind != 'sample' GROUP BY 1"))

    def no_leftovers(self):
        self.assertEqual([path.name for path in self.folder.iterdir() if "streams" in path.name], [])

    def test_output_input_and_exit_code_pass_through(self):
        done = self.record("sh", "-c", "cat; echo error >&2; exit 7", input="from outside")
        self.assertEqual((done.returncode, done.stdout), (7, "from outside"))
        self.assertTrue(done.stderr.startswith("error\n"))
        self.assertIn("nothing was recorded", done.stderr)
        self.assertFalse((self.folder / "x.rooflm").exists())
        self.no_leftovers()

    def test_the_program_is_told_which_steps_to_trace(self):
        show = ("sh", "-c", "echo $ROOFLM_RECORD_TRACE_EVERY")
        for options, expected in (((), "0"), (("--trace-every", "auto"), "0"), (("--trace-every", "1"), "1"), (("--trace-every", "100"), "100")):
            self.assertEqual(self.record(*show, options=options).stdout.strip(), expected, options)
        self.assertEqual(self.record(*show, options=("--trace-every", "0")).returncode, 2)
        wrong = self.record(*show, options=("--trace-every", "Auto"))
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("auto", wrong.stderr)

    def test_it_ends_as_the_program_did(self):
        done = self.record("sh", "-c", "kill -TERM $$")
        self.assertEqual(done.returncode, -signal.SIGTERM)
        self.no_leftovers()

    def test_signals_are_passed_on(self):
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            script = f"import signal, sys; signal.signal({one}, lambda *_: sys.exit(42)); print(1, flush=True); signal.pause()"
            with subprocess.Popen([ROOFLM, "record", "-o", "x.rooflm", "--", sys.executable, "-c", script],
                                  cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
                process.stdout.readline()
                process.send_signal(one)
                self.assertEqual(process.wait(30), 42, one)

    def test_what_cannot_be_started_or_written_is_one_line(self):
        done = self.record("no-such-program")
        self.assertEqual(done.returncode, 3)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.no_leftovers()
        done = self.rooflm("record", "-o", "no/such/folder/x.rooflm", "--", "true")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (3, 1), done.stderr)
        self.assertEqual(self.rooflm("record").returncode, 2)
        self.assertEqual(self.rooflm("record", "-o", "x-%z.rooflm", "--", "true").returncode, 2)
        self.assertEqual(self.rooflm("record", "--calls", "some", "--", "true").returncode, 2)
        self.assertEqual(self.rooflm("record", "--capture-range", "", "--", "true").returncode, 2)
        forgotten = self.rooflm("record", "python3", "train.py")
        self.assertEqual((forgotten.returncode, forgotten.stderr.count("\n")), (2, 1))
        self.assertIn("then --, then the program", forgotten.stderr)
        (self.folder / "x.rooflm").write_text("mine")
        self.assertNotEqual(self.record("true").returncode, 0)
        self.assertEqual((self.folder / "x.rooflm").read_text(), "mine")

    def test_marks_become_steps(self):
        done = self.record(sys.executable, "-c", MARKS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("4 steps", done.stderr)
        self.assertEqual(self.names()["layer"], 4)
        self.assertEqual(self.rows("SELECT status FROM run"), [("success",)])
        self.assertEqual(self.rooflm("verify", "x.rooflm").returncode, 0)
        self.no_leftovers()

    def test_power_that_nobody_tells_is_one_line(self):
        done = self.record(sys.executable, "-c", MARKS, options=["--sample-power"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("4 steps", done.stderr)
        if not self.rows("SELECT 1 FROM gauge"):
            self.assertIn("--sample-power", done.stderr)

    def test_limits_beyond_all_numbers_are_none(self):
        done = self.record(sys.executable, "-c", MARKS, options=["--duration", "1e300", "--max-size", "1e300GB"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.names()["layer"], 4)

    def test_skip_and_steps(self):
        done = self.record(sys.executable, "-c", MARKS, options=["--skip", "1", "--steps", "2"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.names()["layer"], 2)

    def test_a_killed_program_leaves_what_it_did(self):
        for end, code, status in (("os.kill(os.getpid(), 9)", -9, "failed"), ("os._exit(3)", 3, "failed"),
                                  ("os.abort()", -6, "failed")):
            done = self.record(sys.executable, "-c", MARKS + "time.sleep(0.6)\n" + end, options=["--overwrite"])
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual(self.names()["layer"], 4, end)
            self.assertEqual(self.rows("SELECT status FROM run"), [(status,)])
            self.assertIn("did not exit normally", done.stderr)

    def test_what_a_program_did_to_the_recorder_does_not_change_its_exit_code(self):
        done = self.record("sh", "-c", "rm -rf x.rooflm.streams-*; exit 7")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (7, 1), done.stderr)
        self.assertIn("No such file or directory", done.stderr)
        early = MARKS.replace("time.sleep", "str") + "os.kill(os.getpid(), 9)"
        done = self.record(sys.executable, "-c", early)
        self.assertEqual(done.returncode, -9)
        if "nothing was recorded" in done.stderr:  # else it took longer than the first tick
            self.assertIn("ended abnormally before anything was written", done.stderr)

    def test_many_children_are_some_lines(self):
        forks = MARKS + ("for _ in range(50):\n    if os.fork() == 0:\n        library.rooflm_begin()\n        library.rooflm_push(name, 3)\n"
                         "        library.rooflm_pop()\n        sys.exit(0)\nwhile True:\n    try: os.wait()\n    except ChildProcessError: break\n")
        done = self.record(sys.executable, "-c", forks)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.rows("SELECT COUNT(*) FROM run"), [(51,)])
        self.assertLess(done.stderr.count("\n"), 40)
        self.assertIn("more lines: rooflm report x.rooflm", done.stderr)

    def test_children_that_are_forked_or_take_another_executable(self):
        forks = MARKS + "if os.fork() == 0:\n    library.rooflm_push(name, 3)\n    library.rooflm_pop()\n    sys.exit(0)\nos.wait()\n"
        done = self.record(sys.executable, "-c", forks)
        self.assertEqual((done.returncode, self.names()["layer"]), (0, 4), done.stderr)
        execs = MARKS + f"time.sleep(0.3)\nos.execv({sys.executable!r}, [{sys.executable!r}, '-c', {MARKS!r}])\n"
        done = self.record(sys.executable, "-c", execs, options=["--overwrite"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.rows("SELECT COUNT(*) FROM run"), [(2,)])

    def test_one_record_for_each_rank(self):
        script = "for RANK in 0 1; do RANK=$RANK $0 -c \"$1\" & done; wait"
        done = self.rooflm("record", "-o", "rank-%q{RANK}.rooflm", "--", "sh", "-c", script, sys.executable, MARKS)
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in (0, 1):
            self.assertIn(f"rank {rank}", self.rows("SELECT label FROM run", f"rank-{rank}.rooflm")[0][0])

    def test_a_static_program_is_called_one(self):
        source = self.folder / "p.c"
        source.write_text("int main(void) { return 5; }")
        built = subprocess.run(["cc", "-static", "-o", "p", "p.c"], cwd=self.folder, capture_output=True, check=False)
        if built.returncode != 0:
            self.skipTest("no static C library here")
        done = self.record("./p")
        self.assertEqual(done.returncode, 5)
        self.assertIn("statically linked", done.stderr)

    def torch_environment(self):
        return environment(self.folder)

    def test_pytorch_is_marked_without_a_change(self):
        done = self.record(sys.executable, "-c", TRAINING, env=self.torch_environment())
        self.assertEqual((done.returncode, done.stdout), (0, "mine\ntrained\n"), done.stderr)
        names = self.names()
        # Modules in the first four steps, the rest in all of them.
        self.assertEqual((names["Model"], names["0"], names["1"]), (4,) * 3)
        self.assertEqual((names["backward"], names["optimizer"]), (5,) * 2)
        self.assertIn("5 steps", done.stderr)

    def test_a_step_that_is_captured_into_a_graph_is_none(self):
        captured = TRAINING.replace("for step in range(5):", "for step in range(5):\n    torch.cuda.capturing = step == 3")
        done = self.record(sys.executable, "-c", captured, env=self.torch_environment())
        self.assertEqual((done.returncode, self.names()["step"]), (0, 4), done.stderr)

    def test_every_step_is_marked_where_that_is_wanted(self):
        done = self.record(sys.executable, "-c", TRAINING, options=["--mark-every", "1"], env=self.torch_environment())
        self.assertEqual((done.returncode, self.names()["Model"]), (0, 5), done.stderr)
        done = self.record(sys.executable, "-c", TRAINING, options=["--overwrite", "--mark-every", "2"],
                           env=self.torch_environment())
        self.assertEqual((done.returncode, self.names()["Model"]), (0, 5), done.stderr)  # the fifth is the third of two
        self.assertEqual(self.rooflm("record", "--mark-every", "0", "--", "true").returncode, 2)

    def test_pytorch_off_and_programs_own_sitecustomize(self):
        done = self.record(sys.executable, "-c", TRAINING, options=["--pytorch", "off"], env=self.torch_environment())
        self.assertEqual((done.returncode, done.stdout), (0, "mine\ntrained\n"), done.stderr)
        self.assertIn("nothing was recorded", done.stderr)

    def test_streams_become_records_of_modules_and_phases(self):
        (self.folder / "a.stream").write_bytes(streams.training_run().bytes())
        done = self.rooflm("import", "a.stream", "-o", "x.rooflm")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.rooflm("verify", "x.rooflm")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.rows("SELECT kind, COUNT(*) FROM sample WHERE phase = 'step' GROUP BY 1"),
                         [("traced", 7), ("warmup", 1)])
        blocks = dict(self.rows("SELECT phase || ' ' || scope, SUM(device_ns) FROM op JOIN event USING (run, op)"
                                " WHERE step = 3 GROUP BY 1"))
        self.assertEqual(blocks["forward h.0/a"], 12000)  # two kernels of 6 us
        self.assertEqual(blocks["backward h.1/m"], 6000)
        self.assertEqual(blocks["optimizer optimizer"], 6000)
        done = self.rooflm("report", "x.rooflm", "--view", "blocks", "--format", "csv")
        self.assertIn("backward,a", done.stdout)
        self.assertRegex(done.stdout, r"\noptimizer,optimizer,1,1,[^,]+,,[^,]+,,,,,\n")  # nobody knows FLOP, bytes and roof
        for form in ("kineto", "nsys-sqlite", "folded", "nvtx_gpu_proj_sum"):
            self.assertEqual(self.rooflm("export", "x.rooflm", "--format", form, "-o", f"x.{form}").returncode, 0, form)

    def device_times(self, step):
        return dict(self.rows("SELECT phase || ' ' || scope, SUM(device_ns) FROM op JOIN event USING (run, op)"
                              f" WHERE step = {step} GROUP BY 1"))

    def test_what_the_recorder_does_between_steps_is_tracing(self):
        def idle(stream):
            self.import_stream(stream)
            done = self.rooflm("report", "x.rooflm", "--view", "why", "--format", "json")
            rows = [row for table in json.loads(done.stdout)[0]["tables"] for row in table["rows"]]
            return {row["cause"]: round(1e9 * row["seconds"]) for row in rows if row.get("group") == "idle"}

        self.assertNotIn("tracing", idle(streams.training_run()))
        stream = streams.training_run()
        steps = [struct.unpack_from("<QQ", row, 8) for row in stream.rows if row[0] == streams.RANGE and row[1] == streams.STEP]
        for (_, end), (begin, _) in zip(steps[2:], steps[3:]):  # between two steps, in 1 us
            stream.row(streams.RANGE, "rooflm between steps", end - stream.start_ns, begin - stream.start_ns, stream.process, what=streams.RECORDER)
        self.assertEqual(idle(stream)["tracing"], round(5 * 1000 / 7))  # five of seven steps
        self.assertEqual(self.rows("SELECT COUNT(*), n.kind FROM activity JOIN activity_name AS n USING (run, name)"
                                   " WHERE n.text = 'rooflm between steps'"), [(5, "overhead")])

    def test_steps_without_marks_learn_from_those_with_them(self):
        self.import_stream(streams.training_run(steps=9, every=1))
        marked = self.device_times(5)
        said = self.import_stream(streams.training_run(steps=9, every=100))
        self.assertNotIn("counterpart", said)
        self.assertEqual(self.device_times(5), marked)
        # A step with a kernel of its own: it is of no module, all others are where they were.
        said = self.import_stream(streams.training_run(steps=9, every=100, extra=lambda step: step == 5 and "extra"))
        self.assertIn("1 launches have no counterpart", said)
        learned = self.device_times(5)
        self.assertEqual({scope: ns for scope, ns in learned.items() if marked[scope] != ns}, {"forward other": 12000})

    def test_stacks_of_the_host_say_what_kept_the_device_waiting(self):
        stream = streams.training_run()
        kernels = [struct.unpack_from("<BBHIQQ", row) for row in stream.rows if row[0] == streams.KERNEL]
        def sample(text, time_ns, thread=stream.process):
            stream.row(streams.MARK, text, time_ns, time_ns, thread, what=streams.STACK)
        for _, _, _, _, start, end in kernels[len(kernels) // 2:-1]:
            sample("main (t.py:1);busy (t.py:2)", (start + end) // 2 - stream.start_ns)
            sample("main (t.py:1);idle (t.py:3)", start - 1 - stream.start_ns)
            sample("other (t.py:9)", start - 1 - stream.start_ns, thread=7777)
        count = len(kernels) - 1 - len(kernels) // 2
        self.import_stream(stream)
        self.assertEqual(self.rows("SELECT COUNT(*) FROM activity JOIN activity_name USING (run, name)"
                                   " WHERE kind = 'sample'"), [(3 * count,)])
        rows = list(csv.DictReader(self.rooflm("report", "x.rooflm", "--view", "stacks", "--format", "csv").stdout
                                   .split("\n\n")[0].splitlines()[1:]))  # the first line is the table's title
        lines = {row["name"]: (int(row["samples"]), int(row["idle"])) for row in rows}
        self.assertEqual(lines["busy (t.py:2)"], (count, 0))
        self.assertEqual(lines["idle (t.py:3)"][0], count)
        self.assertGreater(lines["idle (t.py:3)"][1], 0)
        self.assertNotIn("other (t.py:9)", lines)
        self.rooflm("export", "x.rooflm", "--format", "stacks", "-o", "x.folded")
        self.assertIn(f"main (t.py:1);busy (t.py:2) {count}\n", (self.folder / "x.folded").read_text())
        self.rooflm("export", "x.rooflm", "--format", "stacks-speedscope", "-o", "x.json")
        profile = json.loads((self.folder / "x.json").read_text())["profiles"][0]
        self.assertEqual((profile["unit"], sum(profile["weights"])), ("none", 2 * count))
        for form in ("kineto", "nsys-sqlite"):
            self.assertEqual(self.rooflm("export", "x.rooflm", "--format", form, "-o", f"y.{form}").returncode, 0, form)

    def test_stacks_are_sampled_and_may_be_left_out(self):
        script = "import torch, time\ndef waits():\n    time.sleep(0.3)\nwaits()\n"
        (self.folder / "t.py").write_text(script)
        done = self.record(sys.executable, "t.py", env=self.torch_environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        stacks = [text for (text,) in self.rows("SELECT text FROM sample_stack")]
        self.assertTrue(any(text.startswith("<module> (t.py:4);waits (t.py:3)") for text in stacks), stacks)
        (self.folder / "x.rooflm").unlink()
        done = self.record(sys.executable, "t.py", options=["--sample-stacks", "off"],
                           env=self.torch_environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("nothing was recorded", done.stderr)
        self.assertFalse((self.folder / "x.rooflm").exists())
        for wrong, says in (("0", "at least"), ("1e9", "at most"), ("often", "not a number")):
            result = self.rooflm("record", "--sample-stacks", wrong, "--", "true")
            self.assertEqual(result.returncode, 2, wrong)
            self.assertIn("--sample-stacks", result.stderr)
            self.assertIn(says, result.stderr)

    def test_steps_that_are_timed_alone(self):
        stream = streams.training_run(steps=40, timed=range(12, 36))
        said = self.import_stream(stream)
        self.assertIn("40 steps", said)
        self.assertIn("24 of the steps were only timed", said)
        self.assertEqual(self.rows("SELECT kind, COUNT(*), MIN(step), MAX(step) FROM sample WHERE phase = 'step' GROUP BY 1"),
                         [("plain", 24, 12, 35), ("traced", 15, 1, 39), ("warmup", 1, 0, 0)])
        # The time of the step is that of those, kernels are those of the others.
        overview = self.rooflm("report", "x.rooflm", "--view", "overview").stdout
        self.assertRegex(overview, r"step +100 us \(.*24 steps\)")
        self.assertRegex(overview, r"traced step +226 us, median of 15")
        self.assertEqual(self.rooflm("verify", "x.rooflm").returncode, 0)
        compared = self.rooflm("compare", "x.rooflm", "x.rooflm", "--format", "csv").stdout
        self.assertIn("step,0.0001,0.0001,", compared)
        everything = streams.training_run(steps=16)
        (self.folder / "all.stream").write_bytes(everything.bytes())
        self.rooflm("import", "all.stream", "-o", "all.rooflm")
        launches = "SELECT scope, phase, launches FROM op ORDER BY 1, 2"
        self.assertEqual(self.rows(launches), self.rows(launches, "all.rooflm"))

    def test_steps_in_which_the_host_ran_ahead_are_no_times(self):
        said = self.import_stream(streams.training_run(steps=20, timed=range(12, 16), timed_us=2))
        self.assertIn("4 of the steps were only timed", said)
        self.assertIn("4 of these had ended on the host before the device could have run them", said)
        self.assertEqual(self.rows("SELECT kind, COUNT(*) FROM sample WHERE phase = 'step' GROUP BY 1"), [("traced", 15), ("warmup", 1)])
        self.assertEqual(self.rooflm("verify", "x.rooflm").returncode, 0)

    def test_nobody_knows_whether_a_step_that_is_timed_alone_was_idle(self):
        stream = streams.training_run(steps=30, timed=range(10, 30))
        ranges = [struct.unpack_from("<BBHIQQ", row)[4:] for row in stream.rows
                  if row[0] == streams.RANGE and row[1] == streams.STEP]
        for start, end in ranges[10:]:
            middle = (start + end) // 2 - stream.start_ns
            stream.row(streams.MARK, "main (t.py:1)", middle, middle, stream.process, what=streams.STACK)
        self.import_stream(stream)
        table = self.rooflm("report", "x.rooflm", "--view", "stacks", "--format", "csv").stdout.split("\n\n")[0]
        row = list(csv.DictReader(table.splitlines()[1:]))[0]
        self.assertEqual((row["name"], row["samples"], row["idle"]), ("main (t.py:1)", "20", "0"))

    def test_threads_that_wait_are_apart_from_those_that_run(self):
        stream = streams.training_run()
        stream.facts |= {"code at 1000": "2000 0 /no/such/libquiet.so.1", "code ab+10": "main (t.py:1)", "stack rate": "100"}
        kernels = sorted(struct.unpack_from("<BBHIQQ", row)[4:6] for row in stream.rows if row[0] == streams.KERNEL)
        begin, end = kernels[len(kernels) // 2][0], kernels[-1][1]
        place = f"{stream.text('0 ab+10'):x} 1010"
        def row(start, stop, periods, what):
            stream.row(streams.MARK, place, start - stream.start_ns, stop - stream.start_ns, stream.process, what=what, other=periods)
        row(begin, begin, 3, streams.FRAMES)
        row(begin, end, 1000, streams.WAITING)  # while kernels run and while none does
        row(begin, begin - 5, 7, streams.WAITING)  # it cannot have: left out
        row(end, 2**63, 9, streams.WAITING)
        row(end + 10**12, end + 2 * 10**12, 5, streams.WAITING)  # after the last step
        self.import_stream(stream)
        self.assertEqual(self.rooflm("verify", "x.rooflm").returncode, 0)
        table = json.loads(self.rooflm("report", "x.rooflm", "--view", "stacks", "--format", "json").stdout)[0]["tables"][0]
        rows = {line["name"]: line for line in table["rows"]}
        line = rows["[libquiet.so.1]"]
        busy = sum(stop - start for start, stop in kernels if start >= begin) / (end - begin)
        self.assertEqual((line["samples"], line["waiting"]), (1003, 1000))
        self.assertAlmostEqual(line["idle"] / 1000, 1 - busy, delta=0.01)
        self.rooflm("export", "x.rooflm", "--format", "stacks", "-o", "x.folded")
        self.assertEqual((self.folder / "x.folded").read_text().splitlines(),
                         ["main (t.py:1);[libquiet.so.1] 3", "main (t.py:1);[libquiet.so.1];[waits] 1000"])
        self.assertIn("1 samples of threads that ran, which stand for 3, and ",
                      self.rows("SELECT text FROM fact WHERE key = 'stack_hertz'")[0][0])

    def test_who_waits_for_another_thread_keeps_no_device_waiting(self):
        stream = streams.training_run()
        kernels = sorted(struct.unpack_from("<BBHIQQ", row)[4:6] for row in stream.rows if row[0] == streams.KERNEL)
        first, begin, end = kernels[0][0] - stream.start_ns, kernels[len(kernels) // 2][0] - stream.start_ns, kernels[-1][1] - stream.start_ns
        worker, proxy = 4242, 4343
        for thread, correlation in ((worker, 900001), (proxy, 0)):  # one more thread that starts work, and one that only asks
            stream.row(streams.API, "cudaLaunchKernel", first, first + 10, thread, correlation=correlation)
        stream.row(streams.KERNEL, "k", first, first + 20, 7, correlation=900001)
        def wait(text, thread, start, stop, periods):
            stream.row(streams.MARK, f"{stream.text('0 ' + text):x} 1010", start, stop, thread, what=streams.WAITING, other=periods)
        stream.facts |= {f"code {name}+1": f"{name} (t.py:1)" for name in ("a1", "b2", "c3")} | {"code at 1000": "2000 0 /no/such/q.so"}
        wait("a1+1", stream.process, begin, end, 1000)
        wait("b2+1", worker, begin - 50_000_000, begin - 40_000_000, 1)  # then it runs
        wait("b2+1", worker, end + 10**10, end + 10**10 + 5, 1)
        wait("c3+1", proxy, begin, end, 1000)
        self.import_stream(stream)
        table = json.loads(self.rooflm("report", "x.rooflm", "--view", "stacks", "--format", "json").stdout)[0]["tables"][1]
        rows = {line["name"]: line for line in table["rows"]}
        self.assertNotIn("c3 (t.py:1)", rows)
        self.assertEqual((rows["a1 (t.py:1)"]["samples"], rows["a1 (t.py:1)"]["waiting"], rows["a1 (t.py:1)"]["idle"]), (1000, 1000, 0))

    def test_stacks_of_addresses_have_names(self):
        stream = streams.training_run()
        stream.facts |= {"code at 1000": "2000 0 /no/such/libquiet.so.1", "code ab+10": "main (t.py:1)",
                         "code at nonsense": "x", "no stacks": "stacks of threads that run were not sampled: why"}
        kernel = next(struct.unpack_from("<BBHIQQ", row)[4] for row in reversed(stream.rows) if row[0] == streams.KERNEL)
        for text in ("ab+10|1010 1100", "|1010", "cd+1|", "|||", "\0\xff"):
            stream.row(streams.MARK, text, kernel - stream.start_ns, kernel - stream.start_ns, stream.process,
                       what=streams.ADDRESSES)
        self.assertIn("were not sampled: why", self.import_stream(stream))
        seen = {text for (text,) in self.rows("SELECT text FROM sample_stack")}
        self.assertEqual(seen, {"main (t.py:1);[libquiet.so.1]", "[libquiet.so.1]", "[unknown]"})
        self.assertEqual(self.rooflm("verify", "x.rooflm").returncode, 0)

    def test_stacks_of_frames_that_name_their_callers(self):
        for version, good in ((1, True), (2, True), (3, True), (4, False)):
            stream = streams.training_run()
            stream.version = version
            stream.facts |= {"code at 1000": "2000 0 /no/such/libquiet.so.1", "code ab+10": "main (t.py:1)", "code cd+1": "f (t.py:2)",
                             "stack rate": "250", "stack cost": "20.5 2 9"}
            time = next(struct.unpack_from("<BBHIQQ", row)[4] for row in reversed(stream.rows) if row[0] == streams.KERNEL)
            main = stream.text("0 ab+10")
            inner = stream.text(f"{main:x} cd+1")
            for text, periods in ((f"{inner:x} 1010", 4), (f"{main:x} 1020", 1), ("ffffff 1030", 0), ("0 nonsense", 1), ("nonsense", 2**40)):
                stream.row(streams.MARK, text, time - stream.start_ns, time - stream.start_ns, stream.process, what=streams.FRAMES,
                           other=periods)
            (self.folder / "a.stream").write_bytes(stream.bytes())
            done = self.rooflm("import", "a.stream", "-o", "x.rooflm", "--overwrite")
            self.assertEqual(done.returncode, 0 if good else 3, done.stderr)
        seen = {text for (text,) in self.rows("SELECT text FROM sample_stack")}
        self.assertEqual(seen, {"main (t.py:1);f (t.py:2);[libquiet.so.1]", "main (t.py:1);[libquiet.so.1]", "[libquiet.so.1]", "[unknown]"})
        value, text = self.rows("SELECT value, text FROM fact WHERE key = 'stack_hertz'")[0]
        self.assertEqual(value, 250)
        self.assertIn("5 samples of threads that ran, which stand for 1048583; each took 20.5 us in the thread", text)
        self.rooflm("export", "x.rooflm", "--format", "stacks", "-o", "x.folded")
        self.assertIn("main (t.py:1);f (t.py:2);[libquiet.so.1] 4\n", (self.folder / "x.folded").read_text())
        self.assertEqual(self.rooflm("verify", "x.rooflm").returncode, 0)

    def test_a_device_that_nobody_knows_has_no_roofs(self):
        stream = streams.training_run()
        stream.facts["device cuda:0"] = "NVIDIA Nonsense 9"
        stream.facts["work 1"] = streams.operator("aten::relu", "forward", "head", [["float32", [8]]], [["float32", [8]]])
        self.assertIn("the catalog does not have cuda:0 (NVIDIA Nonsense 9)", self.import_stream(stream))
        self.assertEqual(self.rows("SELECT COUNT(*) FROM prediction"), [(0,)])

    def test_kernels_that_repeat_themselves_are_steps(self):
        stream, now = streams.Stream(), 1_000_000
        for step in range(9):
            for name in ["embed"] + ["gemm", "norm"] * 5 + ["adam"]:
                stream.launch(name, now, now + 6000, now + 9000)
                now += 10_000
            now += 50_000
        (self.folder / "a.stream").write_bytes(stream.bytes())
        done = self.rooflm("import", "a.stream", "-o", "x.rooflm")
        self.assertIn("12 kernels", done.stderr)
        self.assertEqual(self.rows("SELECT COUNT(*) FROM sample WHERE phase = 'step'"), [(9,)])
        overview = self.rooflm("report", "x.rooflm", "--view", "overview", "--format", "csv").stdout
        self.assertRegex(overview, r"traced step,\"?\S+ us, median of 9, ")
        self.assertIn("9 of kernels that repeat (12 kernels each), 100.0% of the device's time", overview)
        self.assertEqual(self.rooflm("verify", "x.rooflm").returncode, 0)

    def test_streams_with_lies_and_cut_ones(self):
        stream = streams.training_run(steps=5, ended=False, problem="CUPTI: attaching: another profiler", dropped=12)
        stream.row(streams.KERNEL, "backwards", 2000, 1000, 7)
        stream.row(streams.KERNEL, "far", 2**63 - stream.start_ns, 2**63 - stream.start_ns, 7)
        stream.row(streams.RANGE, "here", 2**61, 2**61, 100)
        data = stream.bytes()
        (self.folder / "a.stream").write_bytes(data)
        done = self.rooflm("import", "a.stream", "-o", "x.rooflm")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("another profiler", done.stderr)
        self.assertIn("left out", done.stderr)
        self.assertEqual(self.rows("SELECT status FROM run"), [("interrupted",)])
        (self.folder / "b.stream").write_bytes(data[:len(data) // 2])
        self.assertEqual(self.rooflm("import", "b.stream", "-o", "y.rooflm").returncode, 0)
        (self.folder / "c.stream").write_bytes(data[:300])
        self.assertEqual(self.rooflm("import", "c.stream", "-o", "z.rooflm").returncode, 3)


if __name__ == "__main__":
    unittest.main()
