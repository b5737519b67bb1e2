"""Ranks that stop, are killed or slow while a checkpoint is written.

Usage: test_rank_faults.py BINARY FAULT_INJECTOR_LIBRARY [unittest options]. FAULT_EVERY=n tries every n-th place (13)."""

import errno
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

from test_ranks import Ranks
from training_runs import TrainingRuns, numbers_of

TIMEOUT = 1.5
EVERY = int(os.environ.get("FAULT_EVERY", "13"))
PARTS = ("--zero", "1", "--checkpoint-layout", "parts")


class Checkpoints(Ranks):
    library = ""

    def start_with(self, act, at, *arguments, ranks=2, step=2, file="", calls="write,fsync"):
        """Ranks that write a checkpoint after each step; the fault happens in the one of `step`, in files that begin so.

        None: when that training is resumed, in files beside the checkpoints."""
        folder = self.out if step is None else self.out / f"checkpoint-{step:06}.tmp"
        environment = {**os.environ, "LD_PRELOAD": self.library, "FAULT_CALLS": calls, "FAULT_DO": str(act),
                       "FAULT_PATH": str(folder / file), "FAULT_AT": str(at)}
        words = self.words(self.out, "--batch", "2", "--checkpoint-every", "1", *arguments)
        if step is None:
            words = ["train", "--out", self.out, "--resume", "--no-peak"]
        return subprocess.Popen([self.binary, "launch", "-n", str(ranks), "--timeout", str(TIMEOUT), "--", *map(str, words)],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)

    def wait_for(self, path):
        deadline = time.monotonic() + 60
        while not path.exists():
            self.assertLess(time.monotonic(), deadline, f"no {path}")
            time.sleep(0.01)

    def go_on(self, steps):
        """From the last good checkpoint, to the end, in which each step is there once."""
        self.ok("generate", "--model", self.out, "--prompt", "the cat", "--tokens", 2)
        self.ok("launch", "-n", 2, "--", "train", "--out", self.out, "--resume", "--no-peak")
        self.assertEqual([line["step"] for line in numbers_of(self.out / "log.jsonl")], list(range(1, steps + 1)))

    def expect_end(self, process, *says, code=5):
        """It ends in time, says what is said, and goes on from the checkpoint before."""
        begin = time.monotonic()
        _, errors = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(process.returncode, code, errors)
        for text in says:
            self.assertRegex(errors, text)
        self.assertTrue((self.out / "checkpoint-000001" / "state.json").exists())
        self.go_on(4)

    def test_the_rank_that_writes_hangs(self):
        process = self.start_with("stop", 8, "--steps", 4)
        self.expect_end(process, r"rank 1 \(.*\) waits for rank 0 \(.*\), which has done nothing for 1.5 s, at step 2, waiting for the checkpoint")

    def test_a_rank_hangs_while_others_wait_for_it_to_begin(self):
        """Longer than within a step, and not as long as that may take when it does nothing."""
        self.ok("launch", "-n", 2, "--", *self.words(self.out, "--batch", "2", "--checkpoint-every", "1", "--steps", 3))
        shutil.rmtree(self.out / "checkpoint-000003")
        process = self.start_with("stop", 1, file="log.jsonl", step=None, calls="truncate,rename")
        begin = time.monotonic()
        _, errors = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(process.returncode, 5, errors)
        self.assertRegex(errors, r"rank 1 \(.*\) waits for rank 0 \(.*\), which has done nothing for 1.5 s")

    def test_a_rank_whose_parts_are_needed_hangs(self):
        process = self.start_with("slow150", 1, "--steps", 4, ranks=3)
        self.wait_for(self.out / "checkpoint-000002.tmp")
        os.kill(self.children(process)[1], signal.SIGSTOP)
        self.expect_end(process, r"rank 0 \(.*\) has waited 1.5 s for rank 1 \(.*\), at step 2, gathering \S+ for a checkpoint")

    def test_a_rank_that_hangs_before_anybody_has_heard_of_it(self):
        """While the record is made, at once after all have met: it may never have told that it is alive."""
        record = self.folder / "train.rooflm"
        environment = {**os.environ, "LD_PRELOAD": self.library, "FAULT_CALLS": "unlink", "FAULT_DO": "stop", "FAULT_PATH": str(record), "FAULT_AT": "2"}
        process = subprocess.Popen([self.binary, "launch", "-n", "2", "--timeout", str(TIMEOUT), "--", *map(str, self.words(self.out, "--steps", 2, "--batch", "2", "-o", record))],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
        begin = time.monotonic()
        _, errors = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(process.returncode, 5, errors)
        self.assertRegex(errors, r"rank 0 \(.*\), which has done nothing for 1.5 s|launch: rank 0 \(.*\) has been stopped for \d+ s")

    def test_a_disk_that_is_slow_is_waited_for(self):
        for more in ((), PARTS):
            with self.subTest(more=more):
                shutil.rmtree(self.out, ignore_errors=True)
                begin = time.monotonic()
                process = self.start_with("slow200", 1, "--steps", 3, *more)
                _, errors = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 0, errors)
                self.assertGreater(time.monotonic() - begin, 2 * TIMEOUT)

    def test_a_rank_that_writes_its_part_hangs(self):
        process = self.start_with("stop", 3, "--steps", 4, *PARTS, ranks=3, file=".part-00002")
        self.expect_end(process, r"rank 0 \(.*\) has waited 1.5 s for rank 1 \(.*\), at step 2, waiting for the parts of a checkpoint")

    def test_a_full_disk_of_one_rank_leaves_the_checkpoint_before(self):
        process = self.start_with(errno.ENOSPC, 2, "--steps", 4, *PARTS, file=".part-00002")
        self.expect_end(process, "rank 1 .*No space left on device", code=3)

    def test_any_rank_killed_at_each_change_of_parts(self):
        """As test_faults.py kills one rank that writes all."""
        kills = 0
        for file, most in ((".part-00001", 60), (".part-00002", 60), ("part-00001", 3), ("part-00002", 3), (".state", 5), ("", 120)):
            for at in range(1, most, EVERY):
                with self.subTest(file=file, at=at):
                    shutil.rmtree(self.out, ignore_errors=True)
                    process = self.start_with("kill", at, "--steps", 3, *PARTS, file=file,
                                              calls="write,fsync,truncate,rename,unlink,mkdir")
                    _, errors = process.communicate(timeout=60)
                    if process.returncode == 0:
                        break  # there are no more
                    kills += 1
                    self.assertEqual(process.returncode, 128 + signal.SIGKILL, errors)
                    self.go_on(3)
                    self.assertEqual(list(self.out.glob("*.tmp")), [])
        self.assertGreater(kills, 5)
        print(f"{kills} kills", file=sys.stderr)


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    Checkpoints.library = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
