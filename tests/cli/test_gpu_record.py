"""scripts/gpu_record on a machine without a GPU: limits of time, and its tables, on stand-ins for torch, a recorder and a program."""
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import foreign_records as made

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = (ROOT / "src" / "record" / "schema.sql").read_text(encoding="utf-8")
sys.path.insert(0, str(ROOT / "scripts"))
import limited_run  # noqa: E402
import record_rows  # noqa: E402

HANGS = """
import os, subprocess, sys, time
def waits_for_ever():
    time.sleep(600)
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, __file__, "child"], start_new_session=True)
    print("began", flush=True)
waits_for_ever()
"""
# `record` copies a record to where -o says and runs the program; the other commands say that all is well.
RECORDER = """
import os, shutil, subprocess, sys
words = sys.argv[1:]
if words[0] == "record":
    at = words.index("--")
    code = subprocess.run(words[at + 1:]).returncode
    shutil.copy(os.environ["MADE"], words[words.index("-o") + 1])
    sys.exit(code)
if "--html" in words:
    open(words[words.index("--html") + 1], "w").write("page")
print("a line", "a verdict", sep="\\n")
"""
TORCH = """
import time, types
class Context:
    def __enter__(self): return self
    def __exit__(self, *_): pass
def autocast(*_): return Context()
bfloat16 = manual_seed = lambda *_: None
def randint(*_, **__): return 0
def compile(model, **_): return model
class Optimizer:
    def __init__(self, *_, **__): pass
    def step(self): time.sleep(0.002)
    def zero_grad(self, **_): pass
optim = types.SimpleNamespace(AdamW=Optimizer)
class Stream(Context):
    def wait_stream(self, _): pass
class CUDAGraph:
    def replay(self): time.sleep(0.001)
cuda = types.SimpleNamespace(synchronize=lambda: None, Stream=Stream, CUDAGraph=CUDAGraph, stream=lambda _: Context(),
                             graph=lambda _: Context(), current_stream=Stream)
"""
# The script that times steps of PyTorch, as gpu_record calls it and as record_turns.py uses it.
SCRIPT = """
import types
SIZES = {"small": (8, 8, 1, 1), "2.7B": (8, 8, 1, 1)}
class LM:
    def __init__(self, *_): pass
    def cuda(self): return self
    def parameters(self): return []
    def __call__(self, *_): return types.SimpleNamespace(backward=lambda: None)
if __name__ == "__main__":
    print('{"step": 1.0}')
"""


class Limits(unittest.TestCase):
    def test_all_processes_of_a_program_that_hangs_are_described_and_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "hangs.py")
            program.write_text(HANGS, encoding="utf-8")
            begun = time.monotonic()
            code, text, errors = limited_run.run([sys.executable, str(program)], folder, 1)
        self.assertEqual((code, text), (124, "began\n"))
        self.assertLess(time.monotonic() - begun, 60)
        self.assertIn("stopped after 1 s", errors)
        self.assertEqual(errors.count(f"{program} child: python"), 1, errors)
        self.assertIn("in waits_for_ever", errors)  # the child's stack
        child = next(line.split()[0] for line in errors.splitlines() if f"{program} child:" in line)
        self.assertFalse(pathlib.Path("/proc", child, "exe").exists() and "hangs.py" in limited_run.read(pathlib.Path("/proc", child, "cmdline")))

    def test_a_program_that_ends_is_left_alone(self):
        self.assertEqual(limited_run.run(["sh", "-c", "echo out; echo err >&2; exit 3"], None, 30), (3, "out\n", "err\n"))
        self.assertEqual(limited_run.run(["sh", "-c", "kill -9 $$"], None, 30)[0], -9)

    def test_a_part_whose_time_is_up_runs_nothing_more(self):
        setting = record_rows.Setting("rooflm", ".", 30, part_s=0)
        self.assertEqual(setting.run(["sh", "-c", "exit 0"])[0], 124)


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        made.write_gpu_record(self.folder / "made.rooflm", SCHEMA)
        (self.folder / "torch.py").write_text(TORCH, encoding="utf-8")
        (self.folder / "script.py").write_text(SCRIPT, encoding="utf-8")
        self.write_program("rooflm", f"#!{sys.executable}\n{textwrap.dedent(RECORDER)}")
        self.environment = {**os.environ, "PYTHONPATH": str(self.folder), "MADE": str(self.folder / "made.rooflm")}

    def write_program(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def check(self, *options):
        done = subprocess.run([sys.executable, str(ROOT / "scripts" / "gpu_record"), str(self.folder / "rooflm"), "--keep",
                               str(self.folder / "kept"), *options], capture_output=True, text=True, timeout=300, check=False,
                              env=self.environment)
        return done.returncode, done.stdout, done.stderr

    def test_costs_are_measured_in_turn_and_held_against_what_is_asked(self):
        _, text, errors = self.check("--part", "turns", "--torch-script", str(self.folder / "script.py"), "--turns", "7", "--only",
                                     "^a busy GPU$")
        self.assertIn("2.7B T=1024 L=10 eager, 7 turns of 100 steps", text, errors)
        self.assertRegex(text, r"(reached|MISSED ) +a busy GPU: [+-][\d.]+ % \([+-][\d.]+ to [+-][\d.]+\), asked \+1.5 %")
        self.assertRegex(text, r"not recorded .*\nas it comes ")

    def test_programs_that_keep_a_gpu_busy_are_measured_at_once_each_on_its_own(self):
        self.write_program("nvidia-smi", "#!/bin/sh\necho 'GPU 0: a'\necho 'GPU 1: b'\n")
        with open(self.folder / "script.py", "a", encoding="utf-8") as script:
            script.write("import os, time\nopen(os.environ['SEEN'], 'a').write(f\"{os.environ.get('CUDA_VISIBLE_DEVICES')} \")\n")
        self.environment |= {"PATH": f"{self.folder}:{os.environ['PATH']}", "SEEN": str(self.folder / "seen")}
        _, text, errors = self.check("--part", "turns", "--torch-script", str(self.folder / "script.py"), "--turns", "1", "--only",
                                     "graphs|busy GPU$")
        self.assertIn("small T=128 graph, 1 turns", text, errors)
        self.assertIn("2.7B T=1024 L=10 eager, 1 turns", text, errors)
        self.assertEqual(sorted((self.folder / "seen").read_text(encoding="utf-8").split()), ["0"] * 3 + ["1"] * 2)

    def test_no_turn_begins_after_the_limit(self):
        done = subprocess.run([sys.executable, str(ROOT / "scripts" / "record_turns.py"), str(self.folder / "rooflm"), "--torch-script",
                               str(self.folder / "script.py"), "--turns", "1000", "--limit-s", "0", "--turn-s", "0.01", "--"],
                              capture_output=True, text=True, timeout=120, check=False, env=self.environment)
        self.assertIn("stopped after 6 turns", done.stdout, done.stderr)
        cost, = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(cost["kernels"], 10)
        self.assertAlmostEqual(cost["kernel_bytes"], (self.folder / "made.rooflm").stat().st_size / 10)

    def test_pages_and_views_of_steps_are_kept(self):
        code, text, errors = self.check("--part", "pages", "--torch-script", str(self.folder / "script.py"))
        self.assertEqual(code, 0, text + errors)
        self.assertEqual(sorted(path.name for path in (self.folder / "kept").iterdir()),
                         [f"page-{mode}.{end}" for mode in ("compiled", "eager") for end in ("html", "rooflm", "txt")])

    def test_work_that_is_missing_is_a_failure(self):
        program = self.write_program("program", "#!/bin/sh\necho 20 steps\n[ $1 != exit ] || exit 3\n")
        code, text, errors = self.check("--part", "programs", "--program", program)
        self.assertEqual(code, 1, text + errors)
        self.assertIn("ok    CUDA program, exit: a verdict", text)
        self.assertIn("FAIL  CUDA program, plain: not all of its work", text)
        self.assertIn("FAIL  CUDA program, crash: exit code 0", text)

    def test_unknown_parts_are_refused(self):
        code, _, errors = self.check("--part", "programs,page")
        self.assertEqual((code, errors), (1, "--part: page is none of programs, engine, trainings, script, cost, turns, pages\n"))


if __name__ == "__main__":
    unittest.main()
