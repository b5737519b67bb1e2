#!/usr/bin/env python3
"""What `rooflm plan` finds at its limits (--largest, --smallest), and what it says of plans that have no times.

Usage: test_plan_limits.py BINARY [unittest options]"""

import csv
import io
import json
import sys
import unittest

import test_plan
from test_plan import plan, rooflm

H100 = ("--device", "h100-sxm")


class Columns(unittest.TestCase):
    LARGE = ("plan", "--model", "llama3-70b", "--device", "b200", "--seq", 8192, "--batch", 8)

    def test_what_does_not_fit_has_empty_cells(self):
        done = rooflm(*self.LARGE, "--columns", "model,status,communication_s,speed-up,price,why", "--format", "csv")
        self.assertEqual(done.returncode, 0, done.stderr)
        row, = csv.DictReader(io.StringIO(done.stdout))
        self.assertEqual(row, {"model": "llama3-70b", "status": "oom", "communication_s": "", "speed_up": "", "price": "",
                               "reason": ""})
        done = rooflm(*self.LARGE, "--columns", "model,communication_s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("communication_s", done.stdout.split("\n")[0])

    def test_every_cell_of_a_plan_is_a_column(self):
        options = ("--model", "gpt2", *H100, "--price", 2, "--mtbf", 50000, "--what-if", "link=2x")
        for row in plan(*options):
            done = rooflm("plan", *options, "--columns", ",".join(row), "--format", "json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(list(json.loads(done.stdout)[0]), list(row))

    def test_others_are_refused_before_and_whatever_fits(self):
        for name in ("nope", "term", "unit"):
            for options in (self.LARGE[1:], ("--model", "gpt2", *H100)):
                done = rooflm("plan", *options, "--columns", name)
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertIn(f"unknown column '{name}'", done.stderr)
                self.assertNotIn("did you mean 'no'", done.stderr)
        explained = rooflm("plan", "--model", "gpt2", *H100, "--explain", "step_s", "--columns", "term,time", "--format", "csv")
        self.assertEqual(explained.stdout.split("\n")[0], "term,seconds")


class Refusals(unittest.TestCase):
    def refused(self, text, *options):
        done = rooflm("plan", "--model", "gpt2", *H100, *options)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn(text, done.stderr)

    def test_names_are_given_once(self):
        self.refused("bandwidth is given twice", "--what-if", "bandwidth=2x,bandwidth=3x")

    def test_searches_say_what_they_do_not_try(self):
        self.refused("--smallest tries no interleaved stages", "--smallest", "--interleave", 2)

    def test_a_search_tries_the_parts_that_are_named(self):
        search = ("--model", "gpt2", "--gpus", 8, "--global-batch", 64, "--memory-limit", "3GB", "--search", "--top", 1000, *H100)
        plain, parted = plan(*search), plan(*search, "--interleave", "1,3")
        self.assertEqual({row["interleave"] for row in plain}, {1})
        self.assertEqual({row["interleave"] for row in parted if row["pp"] > 1}, {1, 3})
        self.assertEqual({row["interleave"] for row in parted if row["pp"] == 1}, {1})
        alone = [row for row in parted if row["interleave"] == 1]
        self.assertEqual([row.get("step_s") for row in alone], [row.get("step_s") for row in plain])
        row = next(row for row in parted if row["interleave"] == 3 and row["status"] == "planned")
        again, = plan("--model", "gpt2", "--gpus", 8, "--global-batch", 64, "--memory-limit", "3GB", *H100, "--pp", row["pp"], "--tp", row["tp"],
                      "--zero", row["zero"], "--batch", row["micro_batch"], "--recompute", row["recompute"], "--interleave", 3)
        self.assertAlmostEqual(again["step_s"] / row["step_s"], 1, places=9)

    def test_a_step_that_does_not_fit_is_not_explained(self):
        done = rooflm("plan", "--model", "llama3-8b", *H100, "--explain", "step_s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("It does not fit: it needs", done.stdout + done.stderr)
        self.assertNotIn("FLOP at", done.stdout)


class Smallest(unittest.TestCase):
    def fewest(self, *options):
        rows = plan(*options, *H100, "--smallest")
        self.assertEqual(rows[0]["status"], "planned")
        self.assertTrue(all(row["status"] == "oom" and row["gpus"] < rows[0]["gpus"] for row in rows[1:]))
        return rows[0]["gpus"]

    def test_nodes_need_not_be_powers_of_two(self):
        model = ("--model", "llama3-8b", "--seq", 4096)
        self.assertEqual(self.fewest(*model, "--per-node", 6, "--memory-limit", "33GB"), 6)
        self.assertEqual(self.fewest(*model, "--per-node", 12, "--memory-limit", "20GB"), 11)

    def test_more_need_not_fit(self):
        self.assertEqual(self.fewest("--model", "llama3-70b", "--seq", 4096, "--memory-limit", "61GB", "--global-batch", 240),
                         24)
        odd = ("--model", "llama3-8b", "--layers", 27, "--heads", 27, "--kv-heads", 27, "--d-model", 3456, "--d-ff", 9216)
        self.assertEqual(self.fewest(*odd, "--seq", 1024, "--memory-limit", "40GB", "--global-batch", 9), 3)

    def test_what_never_fits_says_what_it_needs(self):
        row, = plan("--model", "llama3-70b", *H100, "--memory-limit", "1GB", "--smallest", "--gpus", 64)
        self.assertEqual((row["status"], row["gpus"]), ("oom", 64))
        self.assertRegex(row["reason"], "^needs .* of 1.00 GB")


class Largest(unittest.TestCase):
    def largest(self, *options):
        rows = plan(*options, *H100)
        self.assertEqual([row["status"] for row in rows], ["planned", "oom"][:len(rows)])
        return rows[0]

    def test_memory_falls_where_the_loss_goes_to_one_more_chunk(self):
        limit = ("--model", "gpt2", "--memory-limit", 7838142144)
        batch = self.largest(*limit, "--largest", "batch")["micro_batch"]
        self.assertEqual([plan(*limit, *H100, "--batch", batch + more)[0]["status"] for more in range(6)],
                         ["planned"] + 5 * ["oom"])
        self.assertGreater(batch, 18)

    def test_units_are_what_the_split_needs(self):
        row = self.largest("--model", "gpt2", "--tp", 3, "--largest", "seq")
        self.assertEqual(row["seq"], 1023)
        self.assertIn("the maximum possible", row["reason"])
        row = self.largest("--model", "gpt2", "--tp", 12, "--per-node", 16, "--seq", 1020, "--largest", "seq")
        self.assertEqual(row["seq"], 1020)
        row = self.largest("--model", "llama3-8b", "--tp", 2, "--zero", 0, "--seq", 1001, "--batch", 2, "--recompute", "full",
                           "--memory-limit", "80GB", "--largest", "batch")
        self.assertEqual(row["micro_batch"] % 2, 0)


    def test_lists_are_enlarged_one_by_one(self):
        model = ("--model", "gpt2", "--gpus", 8, "--largest", "batch")
        rows = plan(*model, "--zero", "0,3", "--seq", "512,1024", *H100)
        self.assertEqual([row["status"] for row in rows], ["planned", "oom"] * 4)
        for first, (seq, zero) in zip(range(0, 8, 2), ((512, 0), (512, 3), (1024, 0), (1024, 3))):
            self.assertEqual(rows[first:first + 2], plan(*model, "--zero", zero, "--seq", seq, *H100))
        done = rooflm("plan", *model, "--batch", "1,2", *H100)
        self.assertEqual((done.returncode, "leave out the list of --batch" in done.stderr), (2, True), done.stderr)

    def test_a_search_says_which_memory_it_had(self):
        done = rooflm("plan", "--model", "gpt2", "--gpus", 2, "--search", *H100)
        self.assertRegex(done.stderr, r"(?m)^\d+ configurations tried: .* too large for 85.0 GB, ")


class Notes(unittest.TestCase):
    def note(self, *options):
        done = rooflm("plan", *options, *H100)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_frameworks_that_split_the_vocabulary_pad_it(self):
        model = ("--model", "llama3-8b", "--tp", 8, "--seq", 4096)
        for framework, padded in (("megatron", 129024), ("torchtitan", 128264)):
            odd, = plan(*model, "--vocab", 128257, "--framework", framework, *H100)
            even, = plan(*model, "--vocab", padded, "--framework", framework, *H100)
            self.assertAlmostEqual(odd["step_s"] / even["step_s"], 1, places=9)
            self.assertEqual(odd["peak_bytes"], even["peak_bytes"])
            self.assertLess(odd["params"], even["params"])
            self.assertIn(f"pads the vocabulary of 128257 to {padded}",
                          self.note(*model, "--vocab", 128257, "--framework", framework))
        self.assertNotIn("pads", self.note(*model, "--vocab", 128257))

    def test_rings_have_kernels_for_fp32_only(self):
        model = ("--model", "small", "--batch", 16)
        self.assertIn("blocks of ring attention", self.note(*model, "--cp", 2, "--dtype", "tf32"))
        for options in (("--dtype", "tf32"), ("--cp", 2, "--dtype", "fp32"), ("--cp", 2)):
            self.assertNotIn("blocks of ring attention", self.note(*model, *options))


if __name__ == "__main__":
    test_plan.BINARY = sys.argv.pop(1)
    unittest.main()
