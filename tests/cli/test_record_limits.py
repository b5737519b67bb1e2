"""rooflm record of a part of a run, and on a disk that is full.

Usage: test_record_limits.py BINARY [unittest options]"""
import os
import shutil
import subprocess
import sys
import unittest

import streams

ROOFLM = os.path.abspath(sys.argv.pop(1))
# STEPS steps of RANGES ranges each, as the recorder's Python modules mark them.
PROGRAM = """
import ctypes, os, sys, time
library = ctypes.PyDLL(os.environ["CUDA_INJECTION64_PATH"])
library.rooflm_begin()
library.rooflm_text.argtypes = [ctypes.c_char_p]
name = library.rooflm_text(b"layer")
library.rooflm_begin_step()
for step in range(int(sys.argv[1])):
    for _ in range(int(sys.argv[2])):
        library.rooflm_push(name, 3)
        library.rooflm_pop()
    time.sleep(0.02)
    library.rooflm_end_step()
sys.exit(5)
"""


class Limits(streams.Case):
    binary = ROOFLM

    def setUp(self):
        super().setUp()
        (self.folder / "p.py").write_text(PROGRAM, encoding="utf-8")

    def record(self, *options, steps=5, ranges=4):
        done = self.rooflm("record", "--overwrite", "-o", "x.rooflm", "--sample-stacks", "off", *options, "--", sys.executable, "p.py",
                           str(steps), str(ranges))
        self.assertEqual(done.returncode, 5, done.stderr)
        return done.stderr

    def count(self, name="x.rooflm"):
        return self.rows("SELECT COUNT(*) FROM activity JOIN activity_name USING (run, name) WHERE text = 'layer'", name)[0][0]

    def test_why_a_part_that_never_came_is_not_there(self):
        self.assertIn("nothing was recorded: no range 'nosuch' was opened\n", self.record("--capture-range", "nosuch"))
        self.assertIn("no range 'nosuch' was opened after the first 2 (--skip)", self.record("--capture-range", "nosuch", "--skip", "2"))
        self.assertIn("the program did no step after the first 100 (--skip)", self.record("--skip", "100"))
        self.assertFalse((self.folder / "x.rooflm").exists())

    def test_time_and_size_end_a_recording_and_not_the_program(self):
        self.record("--duration", "0.05", steps=20)
        self.assertLess(self.count(), 4 * 10)
        said = self.record("--max-size", "100kB", steps=10, ranges=400)
        self.assertIn("the limit of --max-size was reached: what came after is not in the record", said)
        self.assertLess(0, self.count())
        self.assertLess(self.count(), 400 * 10)

    def full(self, size, script):
        """Runs a shell script in a file system of that size, of its own; what it printed."""
        unshare = shutil.which("unshare")
        command = [str(unshare), "-rm", "sh", "-c", f"mount -t tmpfs -o size={size} none small && cd small && {script}"]
        (self.folder / "small").mkdir()
        if unshare is None or subprocess.run([*command[:4], command[4].split(" && ")[0]], cwd=self.folder, capture_output=True, check=False).returncode != 0:
            self.skipTest("SKIPPED: no file system of its own can be mounted here")
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)
        return done.stdout + done.stderr

    def test_a_disk_that_is_full_when_the_record_is_written(self):
        # The stream fits, the record beside it does not.
        out = self.full("2m", f"{{ {ROOFLM} record -o x.rooflm --sample-stacks off -- {sys.executable} ../p.py 20 1300; echo exit $?;"
                              f" ls; {ROOFLM} import x.rooflm.streams-*/*.stream -o y.rooflm; echo exit $?; ls;"
                              f" {ROOFLM} import x.rooflm.streams-*/*.stream -o ../x.rooflm; }} 2>&1")
        said, _, rest = out.partition("exit 5\n")
        self.assertIn("record: cannot write x.rooflm: database or disk is full; what was recorded is in ", said, out)
        listed, _, rest = rest.partition("rooflm: cannot write y.rooflm: database or disk is full\nexit 3\n")
        self.assertEqual(len(listed.split()), 1, out)  # the streams, and no half of a record
        self.assertIn("import: 26020 activities, 0 memory events, 20 steps", rest, out)
        self.assertEqual(self.count(), 26_000)

    def test_a_disk_that_is_full_while_the_program_runs(self):
        out = self.full("1m", f"{{ {ROOFLM} record -o x.rooflm --sample-stacks off -- {sys.executable} ../p.py 20 2600; echo exit $?;"
                              f" {ROOFLM} import x.rooflm.streams-*/*.stream -o ../x.rooflm; }} 2>&1")
        self.assertIn("exit 5\n", out)
        self.assertIn("import: writing stopped: No space left on device", out)
        self.assertGreater(self.count(), 5000)
        done = subprocess.run([ROOFLM, "verify", str(self.folder / "x.rooflm")], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
