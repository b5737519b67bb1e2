"""Stacks of the host, of programs without a GPU: a native one (tests/inject/native_program.cpp) and Python."""
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import unittest

import streams
from fake_torch import environment

PROGRAM = os.path.abspath(sys.argv.pop(2))
ROOFLM = os.path.abspath(sys.argv.pop(1))
BUSY = """
import torch, hashlib, time
def native_work(data):
    return hashlib.sha256(data).digest()
def python_work(count):
    total = 0
    for i in range(count): total += i * i
    return total
def waits():
    time.sleep(0.3)
def loop():
    data, end = b"x" * 2_000_000, time.process_time() + 0.4
    while time.process_time() < end:
        native_work(data)
        python_work(20_000)
loop()
waits()
"""
WAITS = """
import torch
import os, queue, threading, time
def sleeps(): time.sleep(0.4)
def reads(): os.read(pipe[0], 1)
def gets(): things.get()
def locks():
    with lock: pass
pipe, things, lock = os.pipe(), queue.Queue(), threading.Lock()
lock.acquire()
threads = [threading.Thread(target=function) for function in (reads, gets, locks)]
for thread in threads: thread.start()
sleeps()
os.write(pipe[1], b"x"); things.put(1); lock.release()
for thread in threads: thread.join()
print("done")
"""
POOLS = """
import torch
import concurrent.futures, multiprocessing, time
def work(number):
    until = time.perf_counter() + 0.01
    while time.perf_counter() < until: pass
    import decimal
    return number
for _ in range(6):
    with concurrent.futures.ProcessPoolExecutor(8, mp_context=multiprocessing.get_context("fork")) as pool:
        assert sum(pool.map(work, range(40))) == 780
print("done")
"""


def patient(test, tries=6):
    """A test that counts samples. Timers of processor time fire at the system's ticks: a thread that shares its core with many others is
    seldom there at one, so each try counts anew and one has to hold."""
    @functools.wraps(test)
    def tried(self):
        for left in reversed(range(tries)):
            try:
                return test(self)
            except AssertionError:
                if left == 0:
                    raise
                self.setUp()
    return tried


LOOKS = """
import sys, threading, time
sys.path.insert(0, sys.argv[1])
import rooflm_stacks
sampler = object.__new__(rooflm_stacks.Sampler)
sampler.codes, is_done = {}, threading.Event()
def look():
    while not is_done.is_set():
        sampler.looks = 0
        sampler.find_codes()
def slowly():
    for i in range(30):
        time.sleep(0.0005)
        yield i
thread = threading.Thread(target=look)
thread.start()
try:
    print(sum(len(tuple(slowly())) for _ in range(30)))
finally:
    is_done.set()
print(id(slowly.__code__) in sampler.codes)
"""


class Codes(unittest.TestCase):
    def test_looking_for_code_harms_no_tuple_that_is_being_made(self):
        modules = pathlib.Path(__file__).resolve().parents[2] / "src" / "inject" / "python"
        done = subprocess.run([sys.executable, "-c", LOOKS, str(modules)], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.stdout.split(), ["900", "True"], done.stderr)


class Stacks(streams.Case):
    binary = ROOFLM

    def record(self, *command, options=(), **more):
        return self.rooflm("record", "--overwrite", "-o", "x.rooflm", *options, "--", *command, **more)

    def samples(self, run=1):
        """Frames of each stack of threads that ran, and how often it was seen."""
        return [(text.split(";"), count) for text, count, waits in self.weighted(run) if not waits]

    def waits(self, run=1):
        """Frames of each stack of threads that waited, and for how many periods."""
        return [(text.split(";"), count) for text, count, waits in self.weighted(run) if waits]

    def weighted(self, run):
        said = "COALESCE(e.text, '')"
        return self.rows(f"SELECT s.text, SUM(CASE WHEN {said} LIKE '%waiting%' THEN COALESCE(json_extract(e.text, '$.periods'), 1) ELSE 1 END),"
                         f" {said} LIKE '%waiting%' AS waits FROM activity a JOIN sample_stack s USING (run, name)"
                         f" LEFT JOIN activity_extra e ON e.run = a.run AND e.extra = a.extra WHERE a.run = {run} GROUP BY s.text, waits")

    def native(self, mode, *options):
        done = self.record(PROGRAM, mode, options=options)
        if "timer_create" in done.stderr:
            self.skipTest(done.stderr)
        return done

    @staticmethod
    def seen(samples, *frames):
        """Samples whose frames begin with these, in this order, anything between."""
        count = 0
        for stack, times in samples:
            places = [next((i for i, frame in enumerate(stack) if frame.startswith(name)), -1) for name in frames]
            count += times if -1 not in places and places == sorted(places) else 0
        return count

    @patient
    def test_functions_of_a_native_program(self):
        done = self.native("plain")
        self.assertEqual((done.returncode, done.stdout), (0, "0 ticks\n"), done.stderr)
        samples = self.samples()
        self.assertGreaterEqual(self.seen(samples, "main", "outer_work", "inner_work"), 3, samples)
        folded = subprocess.run([ROOFLM, "export", "x.rooflm", "--format", "stacks", "-o", "x.folded"], cwd=self.folder,
                                capture_output=True, check=False)
        self.assertEqual(folded.returncode, 0)
        self.assertIn(";outer_work (native_program);inner_work (native_program) ", (self.folder / "x.folded").read_text())

    def test_without_them_nothing_is_left(self):
        for options in (["--sample-stacks", "off"], ["--sample-stacks", "python"]):
            self.assertEqual(self.native("plain", *options).returncode, 0)
            self.assertEqual(self.samples(), [], options)

    @patient
    def test_rate_and_kind_in_any_order(self):
        for options in ("native,500", "500,native", "500"):
            self.native("plain", "--sample-stacks", options)
            self.assertGreaterEqual(self.seen(self.samples(), "inner_work"), 3, options)
        for wrong in ("native,often", "perl", "native,0", ""):
            done = self.record("true", options=["--sample-stacks", wrong])
            self.assertEqual(done.returncode, 2, wrong)
            self.assertIn("--sample-stacks", done.stderr)

    @patient
    def test_threads_and_calls_that_wait(self):
        done = self.native("threads", "--sample-stacks", "1000")
        self.assertEqual((done.returncode, done.stdout), (0, "0 interrupted\n0 ticks\n"), done.stderr)
        self.assertGreaterEqual(self.seen(self.samples(), "child_work", "inner_work"), 3)

    @patient
    def test_functions_that_wait(self):
        done = self.native("waits")
        self.assertEqual((done.returncode, done.stdout), (0, "0 interrupted\n0 ticks\n"), done.stderr)
        waits = self.waits()
        for function in ("wait_sleep", "wait_poll", "wait_by_pointer"):  # 30 periods each
            self.assertGreaterEqual(self.seen(waits, "main", "waits_everywhere", function), 15, waits)
        for function in ("wait_lock", "wait_read"):
            self.assertGreaterEqual(self.seen(waits, function), 60, waits)
        self.assertEqual(self.seen(self.samples(), "wait_sleep"), 0)
        # Nothing of the recorder's own threads, and a row for many periods.
        self.assertNotIn("librooflm_inject", str(waits))
        self.assertLess(self.rows("SELECT COUNT(*) FROM activity a JOIN activity_extra e ON e.run = a.run AND e.extra = a.extra"
                                  " WHERE e.text LIKE '%waiting%'")[0][0], 40)
        subprocess.run([ROOFLM, "export", "x.rooflm", "--format", "stacks", "-o", "x.folded"], cwd=self.folder, check=True,
                       capture_output=True)
        text = (self.folder / "x.folded").read_text()
        self.assertRegex(text, r";wait_read \(native_program\);[^\n]*;\[waits\] \d+\n")
        self.assertNotRegex(text, r"inner_work[^\n]*\[waits\]")
        view = subprocess.run([ROOFLM, "report", "x.rooflm", "--view", "stacks", "--format", "json"], cwd=self.folder, check=True,
                              capture_output=True, text=True).stdout
        rows = {row["name"]: row for row in json.loads(view)[0]["tables"][1]["rows"]}
        self.assertEqual(rows["wait_sleep (native_program)"]["waiting"], rows["wait_sleep (native_program)"]["samples"])
        self.assertEqual(rows["outer_work (native_program)"]["waiting"], 0)

    @patient
    def test_only_threads_that_run(self):
        self.assertEqual(self.native("waits", "--sample-stacks", "running").returncode, 0)
        self.assertEqual(self.waits(), [])
        self.assertGreaterEqual(self.seen(self.samples(), "outer_work"), 3)

    @patient
    def test_a_program_with_signals_of_its_own(self):
        done = self.native("own-urg")
        self.assertEqual((done.returncode, done.stdout), (0, "0 ticks\n"), done.stderr)
        self.assertIn("the program handles SIGURG by itself", done.stderr)
        self.assertEqual(self.samples(), [])
        done = self.native("own-prof")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(int(done.stdout.split()[0]), 5)
        self.assertGreaterEqual(self.seen(self.samples(), "outer_work"), 3)

    @patient
    def test_only_what_is_recorded_is_sampled(self):
        done = self.native("steps", "--skip", "1", "--steps", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        samples = self.samples()
        self.assertGreaterEqual(self.seen(samples, "range_work"), 2, samples)
        self.assertEqual((self.seen(samples, "outer_work"), self.seen(samples, "child_work")), (0, 0), samples)

    @patient
    def test_children_that_are_forked(self):
        done = self.native("fork")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.rows("SELECT COUNT(*) FROM run"), [(2,)])
        parent, child = self.samples(1), self.samples(2)
        self.assertGreaterEqual(self.seen(parent, "outer_work"), 3)
        self.assertGreaterEqual(self.seen(child, "child_work"), 3)
        self.assertEqual((self.seen(parent, "child_work"), self.seen(child, "outer_work")), (0, 0))

    @patient
    def test_another_executable_takes_the_place(self):
        done = self.native("exec", "--sample-stacks", "1000")
        self.assertEqual((done.returncode, done.stdout), (0, "0 ticks\n"), done.stderr)
        last = self.rows("SELECT MAX(id) FROM run")[0][0]
        self.assertGreaterEqual(self.seen(self.samples(last), "outer_work"), 3)

    @patient
    def test_a_program_that_crashes(self):
        done = self.native("crash")
        self.assertEqual(done.returncode, -signal.SIGABRT, done.stderr)
        self.assertGreaterEqual(self.seen(self.samples(), "outer_work", "inner_work"), 3)
        self.assertIn("did not exit normally", done.stderr)

    def python(self, *options):
        (self.folder / "t.py").write_text(BUSY)
        done = self.record(sys.executable, "t.py", options=options, env=environment(self.folder))
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.samples()

    @patient
    def test_native_frames_stand_below_the_line_of_python_that_called(self):
        samples = self.python()
        waits = self.waits()
        self.assertGreaterEqual(self.seen(waits, "<module> (t.py:17)", "waits (t.py:10)"), 15, waits)
        in_native = [stack for stack, _ in samples if stack[:3] == ["<module> (t.py:16)", "loop (t.py:14)", "native_work (t.py:4)"]]
        self.assertGreater(self.seen(samples, "<module> (t.py:16)", "loop (t.py:14)", "native_work (t.py:4)"), 3, samples)
        self.assertGreater(self.seen(samples, "loop (t.py:15)", "python_work (t.py:7)"), 3, samples)
        self.assertNotIn("_PyEval", str(samples))
        if not (3, 11) <= sys.version_info < (3, 15):
            self.skipTest("native frames are merged from Python 3.11 on")
        self.assertTrue(any("sha256" in stack[-1].lower() or len(stack) > 3 for stack in in_native), samples)

    @patient
    def test_lines_of_python_that_wait(self):
        (self.folder / "t.py").write_text(WAITS)
        done = self.record(sys.executable, "t.py", env=environment(self.folder))
        self.assertEqual((done.returncode, done.stdout), (0, "mine\ndone\n"), done.stderr)
        waits = self.waits()
        for line in ("sleeps (t.py:4)", "reads (t.py:5)", "gets (t.py:6)", "locks (t.py:8)"):
            self.assertGreaterEqual(self.seen(waits, line), 15, (line, waits))
            self.assertEqual(self.seen(self.samples(), line), 0, line)
        # A wait for the lock of an import, before a line of the script has run, has no line.
        self.assertNotIn("_PyEval", str([stack for stack, count in waits if count > 1]))

    def test_workers_that_are_forked_while_stacks_are_followed(self):
        # The sampler's thread holds the loader's lock at times: a child that has it for ever cannot load a library.
        (self.folder / "t.py").write_text(POOLS)
        done = self.record(sys.executable, "t.py", options=["--sample-stacks", "1000,100%"], env=environment(self.folder))
        self.assertEqual((done.returncode, done.stdout), (0, "mine\ndone\n"), done.stderr)

    @patient
    def test_python_alone_and_native_alone(self):
        samples = self.python("--sample-stacks", "python")
        self.assertGreater(self.seen(samples, "<module> (t.py:16)", "loop (t.py:14)", "native_work (t.py:4)"), 3, samples)
        # A place that was first seen just before the end may have no name.
        self.assertLessEqual(self.seen(samples, "[unknown]"), 2, samples)
        self.assertTrue(all(".py:" in stack[-1] for stack, _ in samples if stack != ["[unknown]"]), samples)
        samples = self.python("--sample-stacks", "native")
        self.assertNotIn("t.py", str(samples))
        self.assertGreater(sum(count for _, count in samples), 10)


if __name__ == "__main__":
    unittest.main()
