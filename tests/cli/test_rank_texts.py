"""Ranks that generate: prompts and layers are shared, and the texts are those of one rank."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest

from test_ranks import Ranks
from training_runs import TrainingRuns


class Texts(Ranks):
    PROMPTS = ["the king", "and", "a much longer prompt than the others are", "x", "of the"]

    def generated(self, model, *arguments, ranks=1, prompts=None):
        starter = ["launch", "-n", ranks, "--"] if ranks > 1 else []
        words = [word for prompt in prompts or self.PROMPTS for word in ("--prompt", prompt)]
        return self.ok(*starter, "generate", "--model", model, *words, "--tokens", 12, "--threads", 1, "--device", "cpu", *arguments)

    def test_ranks_write_the_texts_of_one(self):
        for kind, starter, layout in [(["--arch", "gpt2"], [], "whole"),
                                      (["--arch", "llama", "--kv-heads", "2"], ["launch", "-n", 2, "--"], "parts")]:
            model = self.folder / f"model_{layout}"
            self.ok(*starter, *self.words(model, *kind, "--steps", 10, "--batch", "4", "--checkpoint-layout", layout))
            for sampling in (["--temperature", "0"], ["--temperature", "0.8", "--seed", "3"]):
                whole = self.generated(model, *sampling)
                for ranks, *split in [(2,), (3,), (2, "--tp", "2"), (4, "--tp", "2"), (2, "--tp", "2", "--engine", "eager"),
                                      (2, "--tp", "2", "--no-cache"), (2, "--tp", "2", "--window", "8"), (2, "--window", "8")]:
                    with self.subTest(layout=layout, sampling=sampling, ranks=ranks, split=split):
                        expected = self.generated(model, *sampling, "--window", "8") if "--window" in split else whole
                        self.assertEqual(self.generated(model, *sampling, *split, ranks=ranks), expected)
        one = self.generated(model, prompts=["and"])
        self.assertEqual(self.generated(model, ranks=2, prompts=["and"]), one, "a rank has nothing to do")
        self.assertEqual(self.generated(model, "--tp", "2", ranks=2, prompts=["and"]), one)
        rows = json.loads(self.generated(model, "--format", "json", ranks=2))
        self.assertEqual([row["prompt"] for row in rows], self.PROMPTS)

    def test_prompts_of_standard_input_are_for_all_ranks(self):
        self.ok(*self.words(self.out, "--steps", 2, "--batch", "4"))
        result = subprocess.run([self.binary, "launch", "-n", "2", "--", "generate", "--model", str(self.out), "--prompts", "-", "--tokens", "2", "--threads", "1",
                                 "--device", "cpu", "--format", "json"], input="".join(f"{prompt}\n" for prompt in self.PROMPTS), capture_output=True, text=True,
                                timeout=60, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([row["prompt"] for row in json.loads(result.stdout)], self.PROMPTS)

    def test_the_record_has_a_run_for_each_copy(self):
        self.ok(*self.words(self.out, "--steps", 2, "--batch", "4"))
        for ranks, split, copies in ((2, ["--tp", "2"], 1), (2, [], 2), (4, ["--tp", "2"], 2)):
            with self.subTest(ranks=ranks, split=split):
                record = self.folder / f"texts_{ranks}_{copies}.rooflm"
                rows = json.loads(self.generated(self.out, *split, "-o", record, "--format", "json", ranks=ranks))
                self.ok("verify", record)
                tables = json.loads(self.ok("report", record, "--view", "generation", "--format", "json"))[0]["tables"]
                runs = [row for table in tables if table["id"] == "generation" for row in table["rows"]]
                self.assertEqual(sum(run["texts"] for run in runs), len(self.PROMPTS))
                self.assertEqual(sum(run["tokens"] for run in runs), sum(row["tokens"] for row in rows))
                self.assertEqual(len(runs), copies)

    def test_ranks_decode(self):
        """Random weights: copies have texts of their own, ranks that share layers a part of the keys and values."""
        size = ["bench", "--model", "tiny", "--layers", "2", "--d-model", "32", "--heads", "2", "--vocab", "64", "--seq", "16", "--batch", "3", "--phase", "decode",
                "--steps", "3", "--no-peak", "--device", "cpu", "--threads", "1", "--format", "json"]
        whole = json.loads(self.ok(*size))[0]
        for split in ({"dp": 2, "tp": 1}, {"dp": 1, "tp": 2}):
            row = json.loads(self.ok("launch", "-n", 2, "--", *size, "--dp", split["dp"], "--tp", split["tp"]))[0]
            self.assertEqual((row["status"], row["dp"], row["tp"]), ("success", split["dp"], split["tp"]))
            self.assertAlmostEqual(row["tokens_per_s"], 3 * split["dp"] / row["step_ms_median"] * 1e3, places=3)
            self.assertEqual(row["plan_bytes"] < whole["plan_bytes"], split["tp"] == 2)
        for split in (["--pp", "2"], ["--cp", "2"], ["--dp", "2", "--zero", "1"]):
            result = self.run_rooflm("launch", "-n", 2, "--", *size, *split)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("--phase decode: only --dp (texts) and --tp (layers) can split it", result.stderr)

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_texts_that_nobody_can_write_are_an_error(self):
        """Notes come after the texts: what could not be written before them is not forgotten."""
        self.ok(*self.words(self.out, "--steps", 2, "--batch", "4"))
        for starter in ([], ["launch", "-n", "2", "--"]):
            with open("/dev/full", "w") as full:
                result = subprocess.run([self.binary, *starter, "generate", "--model", str(self.out), "--prompt", "a", "--prompt", "b", "--tokens", "2", "--device", "cpu"],
                                        stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIn("cannot write to standard output", result.stderr)
            done = subprocess.run(f"'{self.binary}' {' '.join(starter)} generate --model '{self.out}' --prompt a --prompt b --tokens 2 --device cpu 2>'{self.folder}/said' | true",
                                  shell=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0)
            self.assertNotIn("standard output", (self.folder / "said").read_text(), "whoever closes the pipe has seen enough")

    def test_ranks_end_quietly_when_nobody_reads_any_more(self):
        self.ok(*self.words(self.out, "--steps", 2, "--batch", "4"))
        process = subprocess.Popen([self.binary, "launch", "-n", "2", "--", "generate", "--model", str(self.out), "--prompt", "a", "--tokens", "100000000",
                                    "--tp", "2", "--threads", "1", "--device", "cpu", "--ignore-eot", "--no-cache"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.read(process.stdout.fileno(), 1)
        process.stdout.close()
        said = process.stderr.read().decode()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=60), 0, said)
        self.assertNotIn("has ended", said)

    def test_a_rank_that_hangs_ends_generating(self):
        self.ok(*self.words(self.out, "--steps", 2, "--batch", "4"))
        process = subprocess.Popen([self.binary, "launch", "-n", "2", "--timeout", "2", "--", "generate", "--model", str(self.out), "--prompt", "a", "--tokens", "100000000",
                                    "--tp", "2", "--threads", "1", "--device", "cpu", "--ignore-eot", "--no-cache"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.read(process.stdout.fileno(), 1)
        ranks = self.children(process)
        os.kill(ranks[1], signal.SIGSTOP)
        drain = threading.Thread(target=process.stdout.read)
        drain.start()
        said = process.stderr.read().decode()
        drain.join()
        process.stdout.close()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=60), 5, said)
        self.assertIn("waits for rank 1", said)

    def test_a_copy_that_hangs_ends_the_others(self):
        """Nobody waits for it before all are done: the others look around while they generate."""
        self.ok(*self.words(self.out, "--steps", 2, "--batch", "4"))
        words = ["--prompt", "a", "--prompt", "b", "--tokens", "100000000", "--threads", "1", "--device", "cpu", "--ignore-eot", "--no-cache"]
        process = subprocess.Popen([self.binary, "launch", "-n", "2", "--timeout", "2", "--", "generate", "--model", str(self.out), *words],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while len(self.children(process)) < 2 or min(map(self.processor_s, self.children(process))) < 0.7:  # much more than reading the model takes
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        ranks = self.children(process)
        os.kill(ranks[1], signal.SIGSTOP)
        begin = time.monotonic()
        _, said = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual(process.returncode, 5, said)
        self.assertRegex(said, r"rank 0 \(.*\): rank 1 \(.*\) has done nothing for 2 s")

    @staticmethod
    def processor_s(process):
        """Seconds of processors that it has used."""
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def test_other_splits_are_refused(self):
        for ranks, split, said in [(1, ["--pp", "2"], "generate --pp: only --dp (prompts) and --tp (layers) can split generation"), (2, ["--cp", "2"], "generate --cp"),
                                   (2, ["--zero", "1"], "generate --zero"), (1, ["--tp", "2"], "is 2 ranks, this job has 1"), (2, ["--tp", "3"], "does not divide the 2 ranks"),
                                   (3, ["--tp", "3"], "--tp 3")]:
            starter = ["launch", "-n", str(ranks), "--"] if ranks > 1 else []
            self.ok(*self.words(self.out, "--steps", 1, "--batch", "4")) if not self.out.exists() else None
            result = subprocess.run([self.binary, *starter, "generate", "--model", str(self.out), "--prompt", "a", "--device", "cpu", *split],
                                    capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(said, result.stderr)


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
