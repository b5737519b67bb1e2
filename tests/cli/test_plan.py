#!/usr/bin/env python3
"""`rooflm plan` as its users see it.

Usage: test_plan.py BINARY [unittest options]"""

import csv
import io
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import unittest

BINARY = ""
KEYS = ("model device gpus dp tp pp zero micro_batch global_batch seq recompute status step_s tokens_per_s mfu peak_bytes "
        "weight_bytes optimizer_bytes gradient_bytes activation_bytes").split()
TERMS = "compute_s slowed_s exposed_s host_s waiting_s bubble_s".split()
PARTS = ("weight_bytes optimizer_bytes gradient_bytes activation_bytes workspace_bytes buffer_bytes gap_bytes "
         "context_bytes").split()


def rooflm(*arguments):
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def plan(*arguments):
    done = rooflm("plan", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def document_of(page):
    with open(page) as file:
        text = file.read()
    start = text.index('id="rooflm-data"')
    start = text.index(">", start) + 1
    return json.loads(text[start:text.index("</script>", start)])


class Plan(unittest.TestCase):
    def refused(self, code, text, *arguments):
        done = rooflm("plan", *arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(text, done.stderr)

    def test_rows_have_the_keys_and_parts_add_up(self):
        row, = plan("--model", "gpt2", "--device", "h100-sxm", "--batch", 32)
        for key in KEYS:
            self.assertIn(key, row)
        self.assertEqual(row["status"], "planned")
        self.assertEqual(row["step_kind"], "calibrated")
        self.assertAlmostEqual(sum(row[key] for key in TERMS) / row["step_s"], 1, places=9)
        self.assertLessEqual(abs(sum(row[key] for key in PARTS) - row["peak_bytes"]), len(PARTS))
        self.assertLess(row["step_low_s"], row["step_s"])
        self.assertLess(row["step_s"], row["step_high_s"])
        self.assertAlmostEqual(row["tokens_per_s"] * row["step_s"] / (32 * 1024), 1, places=9)

    def test_what_does_not_fit_is_oom_and_has_no_time(self):
        row, = plan("--model", "llama3-70b", "--device", "h100-sxm")
        self.assertEqual(row["status"], "oom")
        self.assertNotIn("step_s", row)
        self.assertGreater(row["peak_bytes"], row["memory_limit_bytes"])
        self.assertLess(row["memory_left_bytes"], 0)
        self.assertIn("Nothing fits: --search tries every", rooflm("plan", "--model", "llama3-70b", "--device", "h100-sxm").stdout)

    def test_a_slower_device_is_slower_and_assumed(self):
        rows = plan("--model", "gpt2", "--device", "h100-sxm,a100-sxm", "--batch", 8)
        self.assertLess(rows[0]["step_s"], rows[1]["step_s"])
        self.assertEqual(rows[1]["step_kind"], "assumed")

    def test_lists_are_sweeps(self):
        rows = plan("--model", "tiny", "--device", "h200", "--batch", "1,2", "--seq", "128:384:128")
        self.assertEqual([(r["micro_batch"], r["seq"]) for r in rows], [(b, t) for b in (1, 2) for t in (128, 256, 384)])

    def test_the_host_binds_eager_frameworks(self):
        fused, eager = (plan("--model", "tiny", "--device", "h100-sxm", "--framework", name)[0]
                        for name in ("rooflm-fused", "torch-eager"))
        self.assertEqual(fused["host_s"], 0)
        self.assertGreater(eager["host_s"], 0)

    def test_micro_batches_cost_about_what_the_second_costs(self):
        two, four, six = (plan("--model", "tiny", "--device", "h100-sxm", "--batch", 4, "--global-batch", 4 * m)[0]
                          for m in (2, 4, 6))
        self.assertAlmostEqual((six["step_s"] - four["step_s"]) / (four["step_s"] - two["step_s"]), 1, places=6)
        self.assertEqual(two["peak_bytes"], six["peak_bytes"])

    def test_zero_divides_what_it_says(self):
        # 16-bit weights, fp32 masters and moments: 2 + 4 + 8 bytes a parameter, and what ranks share of it.
        ranks = 8
        rows = [plan("--model", "gpt2", "--device", "h100-sxm", "--dp", ranks, "--zero", zero, "--framework", "megatron")[0]
                for zero in (0, 1, 2, 3)]
        n = rows[0]["params"]
        self.assertAlmostEqual(rows[0]["optimizer_bytes"] / n, 8, places=1)
        for row in rows[1:]:
            self.assertAlmostEqual(row["optimizer_bytes"] / n, 8 / ranks, places=1)
        self.assertGreater(rows[0]["peak_bytes"], rows[1]["peak_bytes"])
        self.assertLess(rows[3]["weight_bytes"], rows[1]["weight_bytes"])

    def test_tensor_parallel_ranks_share_products_and_memory(self):
        one, two = (plan("--model", "medium", "--device", "h100-sxm", "--tp", tp, "--batch", 8)[0] for tp in (1, 2))
        self.assertEqual(two["gpus"], 2)
        self.assertLess(two["compute_s"], 0.7 * one["compute_s"])
        self.assertLess(two["weight_bytes"], 0.6 * one["weight_bytes"])
        self.assertGreater(two["communication_s"], 0)

    def test_pipelines_have_bubbles_that_micro_batches_shrink(self):
        few, many = (plan("--model", "medium", "--device", "h100-sxm", "--pp", 4, "--batch", 4,
                          "--global-batch", 4 * m)[0] for m in (4, 32))
        self.assertGreater(few["bubble_s"] / few["step_s"], many["bubble_s"] / many["step_s"])
        self.assertGreater(few["bubble_s"] / few["step_s"], 0.2)

    def test_gradients_are_hidden_behind_the_backward_pass(self):
        row, = plan("--model", "xl", "--device", "h100-sxm", "--dp", 8, "--batch", 8, "--zero", 1)
        self.assertGreater(row["communication_s"], row["exposed_s"])

    def test_peer_memory_hides_sums_of_gradients_that_have_little_to_hide_behind(self):
        split = ("--model", "gpt2", "--device", "h100-sxm", "--gpus", 2, "--seq", 128, "--clip", 0)
        default, = plan(*split)
        peers, = plan(*split, "--collectives", "peer-memory")
        self.assertLess(peers["step_s"], default["step_s"])

    def test_search_ranks_and_says_why(self):
        done = rooflm("plan", "--model", "medium", "--device", "h100-sxm", "--gpus", 4, "--global-batch", 16, "--search",
                      "--top", 100, "--format", "json")
        rows = json.loads(done.stdout)
        fitting = [row["step_s"] for row in rows if row["status"] == "planned"]
        self.assertEqual(fitting, sorted(fitting))
        self.assertEqual(rows[0]["reason"], "best")
        self.assertTrue(all(row["dp"] * row["tp"] * row["pp"] == 4 for row in rows))
        self.assertTrue(all("slower" in row["reason"] or "needs" in row["reason"] for row in rows[1:]))

    def test_the_search_of_175_billion_names_a_reason_for_each_loser(self):
        done = rooflm("plan", "--model", "gpt3-175b", "--device", "h100-sxm", "--gpus", 1024, "--search", "--top", 3)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count(" slower, mostly "), 2)

    def test_fp8_is_planned_where_the_catalog_has_a_rate(self):
        bf16, fp8 = plan("--model", "2.7B", "--device", "h100-sxm", "--batch", 4, "--dtype", "bf16,fp8")
        self.assertLess(fp8["step_s"], bf16["step_s"])
        self.assertEqual((bf16["step_kind"], fp8["step_kind"]), ("calibrated", "assumed"))
        # The program that is planned is the one that engines run.
        done = rooflm("program", "--model", "tiny", "--device", "null:h100-sxm", "--dtype", "fp8", "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("fp8_scales", done.stdout)
        done = rooflm("program", "--model", "tiny", "--device", "null:a100-sxm", "--dtype", "fp8")
        self.assertEqual(done.returncode, 5, done.stderr)

    def test_every_dtype_of_a_device_is_planned(self):
        dtypes = "fp32,bf16x6,tf32,fp16,bf16,fp8"
        rows = plan("--model", "gpt2", "--device", "h100-sxm", "--batch", 8, "--seq", 1024, "--dtype", dtypes)
        steps = [row["step_s"] for row in rows]
        self.assertEqual(steps, sorted(steps, reverse=True))

    def test_every_fp32_product_is_planned_in_every_split(self):
        for split in (("--cp", 2), ("--tp", 2), ("--pp", 2), ("--dp", 2, "--zero", 3)):
            rows = plan("--model", "small", "--device", "h100-sxm", "--gpus", 2, "--seq", 1024, *split, "--dtype", "fp32,bf16x6,tf32")
            self.assertEqual([row["status"] for row in rows], ["planned"] * 3, split)

    def test_context_parallel_ranks_share_a_sequence(self):
        base = ("--model", "llama3-8b", "--device", "h200", "--recompute", "full", "--seq", 8192)
        one, = plan(*base, "--gpus", 8, "--zero", 3, "--framework", "torch-compile")
        four, = plan(*base, "--gpus", 8, "--zero", 3, "--cp", 4, "--framework", "torch-compile")
        self.assertEqual((four["dp"], four["cp"], four["global_batch"]), (2, 4, 2))
        self.assertLess(four["activation_bytes"], 0.5 * one["activation_bytes"])
        self.assertLess(four["step_s"], 0.5 * one["step_s"])

    def test_layers_that_nearly_divide(self):
        base = ("--model", "gpt2", "--layers", 14, "--device", "h100-sxm", "--pp", 4, "--global-batch", 8)
        self.refused(2, "with --short-ends it does", *base)
        row, = plan(*base, "--short-ends")
        self.assertEqual(row["short_ends"], 1)

    def test_scaling_curves(self):
        base = ("--model", "xl", "--device", "h100-sxm", "--batch", 4, "--zero", 1, "--gpus", "8,16,32")
        strong = plan(*base, "--scaling", "strong", "--global-batch", 128)
        self.assertEqual({row["global_batch"] for row in strong}, {128})
        self.assertEqual((strong[0]["speed_up"], strong[0]["efficiency"]), (1, 1))
        self.assertTrue(1 < strong[1]["speed_up"] < strong[2]["speed_up"] < 4)
        for row, times in zip(strong, (1, 2, 4)):
            self.assertAlmostEqual(row["speed_up"], strong[0]["step_s"] / row["step_s"], places=9)
            self.assertAlmostEqual(row["efficiency"], row["speed_up"] / times, places=9)
        weak = plan(*base, "--scaling", "weak")
        self.assertEqual([row["global_batch"] for row in weak], [32, 64, 128])
        self.assertGreater(weak[2]["efficiency"], strong[2]["efficiency"])
        best = plan("--model", "gpt2", "--device", "h100-sxm", "--gpus", "2,4", "--global-batch", 16, "--scaling", "strong",
                    "--search")
        self.assertEqual([row["gpus"] for row in best], [2, 4])

    def test_the_largest_that_fits(self):
        for what, key, options in (("batch", "micro_batch", ()), ("seq", "seq", ("--batch", 8)),
                                   ("layers", None, ("--batch", 8))):
            fits, next_one = plan("--model", "gpt2", "--arch", "llama", "--device", "rtx-4090", "--largest", what, *options)
            self.assertEqual((fits["status"], next_one["status"]), ("planned", "oom"), what)
            self.assertRegex(fits["reason"], rf"^--{what} \d+ is the largest that fits")
            if key:
                self.assertGreater(next_one[key], fits[key])
        model = ("--model", "llama3-8b", "--device", "h100-sxm", "--gpus", 16, "--pp", 4, "--tp", 4, "--short-ends",
                 "--global-batch", 8, "--recompute", "full")
        fits, _ = plan(*model, "--largest", "layers")
        again, = plan(*model, "--layers", fits["reason"].split()[1])
        self.assertEqual(again["status"], "planned")

    def test_the_smallest_cluster(self):
        fits, fewer = plan("--model", "llama3-8b", "--device", "h100-sxm", "--smallest")
        self.assertEqual((fits["status"], fewer["status"]), ("planned", "oom"))
        self.assertLess(fewer["gpus"], fits["gpus"])
        self.assertLess(fits["gpus"], 16)
        for model, most, batch, limit, fewest in (("llama3-8b", 16, 48, "48GB", 3), ("llama3-70b", 14, 56, "85GB", 14)):
            fits, _ = plan("--model", model, "--device", "h100-sxm", "--smallest", "--gpus", most, "--global-batch", batch,
                           "--memory-limit", limit)
            self.assertEqual((fits["gpus"], fits["status"]), (fewest, "planned"))

    def test_what_if(self):
        now, then = plan("--model", "gpt2", "--device", "h100-sxm", "--batch", 8, "--what-if", "bandwidth=2x,compute=2x")
        self.assertEqual(then["what_if"], "compute=2x,bandwidth=2x")
        self.assertNotIn("what_if", now)
        self.assertLess(then["step_s"], 0.7 * now["step_s"])
        self.assertEqual(then["step_kind"], "assumed")
        near, far = plan("--model", "xl", "--device", "h100-sxm", "--dp", 16, "--zero", 3, "--what-if", "network=0.1x")
        self.assertGreater(far["exposed_s"], near["exposed_s"])

    def test_failures_cost_time(self):
        base = ("--model", "llama3-70b", "--device", "h100-sxm", "--gpus", 1024, "--tp", 8, "--zero", 1, "--seq", 4096,
                "--recompute", "full")
        none, = plan(*base)
        some, = plan(*base, "--mtbf", 50000, "--checkpoint", 60)
        self.assertNotIn("goodput", none)
        self.assertTrue(0.8 < some["goodput"] < 1)
        self.assertAlmostEqual(some["days"] * some["goodput"] / none["days"], 1, places=9)
        self.assertAlmostEqual(some["cluster_mtbf_s"], 50000 * 3600 / 1024)
        self.assertGreater(some["checkpoint_interval_s"], 60)

    def test_numbers_have_intervals(self):
        row, = plan("--model", "gpt2", "--device", "a100-sxm", "--batch", 8, "--price", 2)
        for key in "tokens_per_s mfu hfu days gpu_hours price energy_kwh".split():
            self.assertLess(row[key + "_low"], row[key], key)
            self.assertLess(row[key], row[key + "_high"], key)
        full, = plan("--model", "gpt2", "--device", "a100-sxm", "--batch", 8, "--recompute", "full")
        self.assertGreater(full["hfu"] / full["mfu"], 1.15)

    def test_catalogs_of_ones_own(self):
        own = {"key": "my-gpu", "name": "My GPU", "peak_flop_per_s": {"bf16": 494.7e12, "fp32": 33e12}, "multiprocessors": 132,
               "memory": [{"name": "DRAM", "bytes": 40e9, "byte_per_s": 1.675e12}], "links": [], "source": "made up"}
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/catalog.json"

            def options(**changes):
                entry = {key: value for key, value in {**own, **changes}.items() if value is not None}
                with open(path, "w") as file:
                    json.dump({"devices": [entry]}, file)
                return "--model", "gpt2", "--batch", 8, "--catalog", path, "--device", "my-gpu,h100-sxm"

            mine, h100 = plan(*options())
            self.assertEqual(mine["device"], "my-gpu")
            # A small step has the H100's highest clock; of another chip's clock nothing is known.
            self.assertGreater(mine["step_s"], 1.7 * h100["step_s"])
            self.assertLess(mine["step_s"], 2.7 * h100["step_s"])
            self.assertEqual((mine["step_kind"], mine["memory_limit_bytes"]), ("assumed", 40e9))
            for text, changes in (("'multiprocessors' is missing", {"multiprocessors": None}),
                                  ("'peak_flop_per_s of bf16' must be a number above 0, not -1", {"peak_flop_per_s": {"bf16": -1}}),
                                  ("'byte_per_s' is missing", {"memory": [{"name": "DRAM", "bytes": 40e9}]}),
                                  ("'power_w' must be a number above 0, not \"high\"", {"power_w": "high"}),
                                  ("unknown key 'power'", {"power": 300}),
                                  ("there is a device h200 already", {"key": "h200"})):
                self.refused(3, text, *options(**changes))
            self.refused(5, "not available on my-gpu", *options(), "--dtype", "fp16")
            for several in (("--gpus", 2), ("--gpus", 8, "--search")):
                self.refused(2, "no link between devices of my-gpu is known", *options()[:-1], "my-gpu", *several)
            self.refused(2, "did you mean 'my-gpu'", *options()[:-1], "my-gpo")

    def test_explained_terms_add_up(self):
        done = rooflm("plan", "--model", "gpt2", "--device", "h100-sxm", "--explain", "step_s", "--format", "json")
        terms = {row["term"]: row["seconds"] for row in json.loads(done.stdout)}
        step = terms.pop("step_s")
        self.assertAlmostEqual(sum(terms.values()) / step, 1, places=2)

    def test_formats(self):
        text = rooflm("plan", "--model", "tiny", "--device", "h100-sxm", "--format", "csv").stdout
        row, = csv.DictReader(io.StringIO(text))
        self.assertEqual(row["model"], "tiny")
        table = rooflm("plan", "--model", "tiny", "--device", "h100-sxm").stdout
        self.assertIn("dense bf16 of the datasheet", table)
        self.assertIn("(6N + 12LCT)", table)

    def test_money_and_tokens(self):
        row, = plan("--model", "gpt2", "--device", "h100-sxm", "--tokens", "1e9", "--price", 2)
        self.assertAlmostEqual(row["price"], 2 * row["gpu_hours"])
        self.assertAlmostEqual(row["gpu_hours"], 1e9 / row["tokens_per_s"] / 3600)

    def test_against_a_record(self):
        with tempfile.TemporaryDirectory() as folder:
            record = f"{folder}/a.rooflm"
            done = rooflm("bench", "--model", "tiny", "--layers", 1, "--vocab", 64, "--batch", 1, "--seq", 16, "--steps", 2,
                          "--no-peak", "-o", record)
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = {row["what"]: row for row in plan("--against", record, "--device", "h100-sxm")}
            self.assertGreater(rows["step_s"]["measured"], 0)
            self.assertGreater(rows["step_s"]["planned"], 0)
            # The rewrites of a GPU's program are others than the processor's, so only the size is the same.
            self.assertLess(abs(rows["memory"]["error"]), 0.5)
            self.refused(3, "no op of a training step was timed", "--calibrate", record, "--device", "h100-sxm")
            # As if a profile had timed the products of that step: 2 ms in all. Plans of it then say so, too.
            database = sqlite3.connect(record)
            database.execute("INSERT INTO op (run, op, kind, class, kernel, name, phase, scope, dtype, shapes, matmul_flop, "
                             "elementwise_flop, bytes_read, bytes_written, launches) VALUES "
                             "(1, 0, 'matmul', 'matmul', 'k', 'x', 'forward', 'h.0', 'fp32', '', 1, 0, 1, 1, 1)")
            database.execute("INSERT INTO event (run, step, op, start_ns, device_ns) VALUES (1, 3, 0, 0, 2000000)")
            database.commit()
            database.close()
            same = ("--model", "tiny", "--layers", 1, "--vocab", 64, "--batch", 1, "--seq", 16, "--dtype", "fp32",
                    "--device", "h100-sxm", "--calibrate", record)
            terms = {row["term"]: row["seconds"] for row in json.loads(
                rooflm("plan", *same, "--explain", "step_s", "--format", "json").stdout)}
            self.assertAlmostEqual(terms["matmul"] / 2e-3, 1, places=2)
            self.assertIn("Calibrated by a record, times the tables: matmul", rooflm("plan", *same).stdout)
            with open(f"{folder}/bad.rooflm", "w") as file:
                file.write("no record")
            self.refused(3, "bad.rooflm", "--against", file.name, "--device", "h100-sxm")

    def test_the_page_and_the_record_of_a_plan(self):
        with tempfile.TemporaryDirectory() as folder:
            page, kept = f"{folder}/plan.html", f"{folder}/plan.rooflm"
            cluster = ("--model", "gpt2", "--device", "h100-sxm", "--gpus", 16, "--global-batch", 64)
            done = rooflm("plan", *cluster, "--search", "--top", 3, "--price", 2, "--html", page, "-o", kept, "--format", "json")
            if "built without npm" in done.stderr:
                self.skipTest("no report page in this build")
            self.assertEqual(done.returncode, 0, done.stderr)
            best = json.loads(done.stdout)[0]
            document = document_of(page)
            self.assertIn("gpt2 on 16 h100-sxm", document["title"])
            self.assertEqual(document["files"], [kept])
            self.assertIn("It fits", document["answer"])
            tables = {table["id"]: table["rows"] for table in document["tables"]}
            charts = {chart["id"]: chart for chart in document["charts"]}
            numbers = {row["what"]: row for row in tables["plan.numbers"]}
            self.assertEqual(numbers["step"]["value"], best["step_s"])
            self.assertEqual((numbers["step"]["low"], numbers["step"]["high"]), (best["step_low_s"], best["step_high_s"]))
            self.assertEqual(numbers["price"]["kind"], "assumed")
            self.assertEqual(len(tables["plan.rows"]), 3)
            self.assertGreater(len(tables["plan.search"]), 3)
            self.assertTrue(all(row["reason"] for row in tables["plan.search"]))
            # Splits are named at the points of the frontier.
            self.assertIn("zero", charts["plan.frontier"]["series"][0]["points"][0][4])
            self.assertEqual(charts["plan.memory"]["limit"]["y"], best["memory_limit_bytes"])
            self.assertAlmostEqual(sum(row["seconds"] for row in tables["plan.terms"] if row["term"] == "step_s"), best["step_s"])
            run = document["runs"][-1]
            self.assertEqual((run["kind"], run["status"]), ("plan", "planned"))
            self.assertIn("Simulated, not measured", run["timeline"]["notes"][0])
            self.assertGreater(run["timeline"]["events"]["count"], 100)
            # The record has the same page, and its numbers hold.
            self.assertEqual(rooflm("verify", kept).returncode, 0)
            shown = rooflm("report", kept)
            self.assertIn("== Splits that a search planned", shown.stdout)
            printed = rooflm("plan", *cluster, "--html", "-")
            self.assertNotIn(f"{tempfile.gettempdir()}/rooflm-", printed.stdout)  # a record that is gone
            self.assertTrue(printed.stdout.startswith("<!"), printed.stdout[:80])
            # What is there stays.
            self.refused(3, "--overwrite", *cluster, "--html", page)
            self.refused(2, "--html", *cluster, "--html", page, "-o", page, "--overwrite")
            self.refused(2, "--html", *cluster, "--catalog", page, "--html", page, "--overwrite")
            dry = rooflm("plan", *cluster, "--html", f"{folder}/none.html", "--dry-run")
            self.assertEqual((dry.returncode, os.path.exists(f"{folder}/none.html")), (0, False))
            self.assertIn("none.html", dry.stdout)

    def test_the_timeline_of_a_plan_is_its_step(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = f"{folder}/plan.rooflm"

            def lanes(*arguments):
                row, = plan("--model", "gpt2", "--layers", 4, "--device", "h100-sxm", *arguments, "-o", kept, "--overwrite")
                with sqlite3.connect(kept) as record:
                    rows = record.execute("SELECT run.label, lane.name, lane.kind, name.text, SUM(end_ns - start_ns), MAX(end_ns) FROM activity "
                                          "JOIN lane USING (run, lane) JOIN activity_name AS name USING (run, name) JOIN run ON run.id = run "
                                          "GROUP BY 1, 2, 3, 4").fetchall()
                record.close()
                return row, rows
            row, rows = lanes("--gpus", 16, "--zero", 1)
            end = max(end for *_, end in rows) * 1e-9
            self.assertAlmostEqual(end / row["step_s"], 1, places=2)
            idle = {text: ns * 1e-9 for _, _, kind, text, ns, _ in rows if kind == "idle"}
            self.assertAlmostEqual(idle["exposed communication"], row["exposed_s"], places=5)
            self.assertEqual({name for _, name, kind, *_ in rows if kind == "link"}, {"network"})
            # Frameworks that submit op by op have a lane of the host.
            row, rows = lanes("--framework", "torch-eager")
            idle = {text: ns * 1e-9 for _, _, kind, text, ns, _ in rows if kind == "idle"}
            self.assertAlmostEqual(idle["host"] / row["host_s"], 1, places=2)
            self.assertIn(("host", "host"), {(name, kind) for _, name, kind, *_ in rows})
            # Stages of a pipeline: their passes and the bubbles between them.
            row, rows = lanes("--gpus", 2, "--pp", 2, "--global-batch", 8)
            passes = [one for one in rows if one[0] == "all stages"]
            self.assertAlmostEqual(max(end for *_, end in passes) * 1e-9, row["step_s"], places=8)
            self.assertEqual({one[0] for one in rows}, {"all stages", "stage 0", "stage 1"})
            self.assertGreater(sum(ns for _, _, _, text, ns, _ in passes if text == "bubble"), 0)

    def test_what_does_not_fit_has_a_page_without_a_step(self):
        with tempfile.TemporaryDirectory() as folder:
            page = f"{folder}/oom.html"
            done = rooflm("plan", "--model", "llama3-70b", "--device", "h100-sxm", "--html", page)
            if "built without npm" in done.stderr:
                self.skipTest("no report page in this build")
            document = document_of(page)
            self.assertIn("It does not fit", document["answer"])
            self.assertEqual(document["runs"], [])
            numbers = next(table["rows"] for table in document["tables"] if table["id"] == "plan.numbers")
            self.assertEqual([row["what"] for row in numbers], ["peak memory per rank"])

    def test_calibrated_by_a_real_record(self):
        """What a profile of the processor timed: plans of that step have its times by kind of op, whatever the rates
        of the device were said to be; more layers take as much longer as their ops are more."""
        with tempfile.TemporaryDirectory() as folder:
            record, catalog = f"{folder}/cpu.rooflm", f"{folder}/own.json"
            with open(catalog, "w") as file:
                json.dump({"devices": [{"key": "two-cores", "name": "two cores", "multiprocessors": 2, "power_w": 50,
                                        "peak_flop_per_s": {"fp32": 0.5e12, "bf16": 0.5e12}, "source": "made up",
                                        "memory": [{"name": "DRAM", "bytes": 8e9, "byte_per_s": 30e9}],
                                        "links": [{"name": "none", "byte_per_s": 1e9}]}]}, file)
            size = ("--model", "tiny", "--vocab", 512, "--batch", 2, "--seq", 32, "--dtype", "fp32")
            done = rooflm("profile", *size, "--layers", 2, "--device", "cpu", "--threads", 1, "--max-steps", 4, "--min-steps", 3,
                          "--trace", "off", "--view", "overview", "-o", record)
            self.assertEqual(done.returncode, 0, done.stderr)
            on = ("--device", "two-cores", "--catalog", catalog)
            measured = {row["what"]: row["measured"] for row in plan("--against", record, *on) if row["unit"] == "s"}

            def terms(*more):
                rows = json.loads(rooflm("plan", *size, *on, *more, "--explain", "step_s", "--format", "json").stdout)
                return {row["term"]: row["seconds"] for row in rows}
            same = terms("--layers", 2, "--calibrate", record)
            for kind in ("matmul", "norm", "elementwise", "optimizer"):
                self.assertAlmostEqual(same[kind] / measured[kind], 1, places=2, msg=kind)
            before, after = terms("--layers", 2), terms("--layers", 4)
            more = terms("--layers", 4, "--calibrate", record)
            self.assertAlmostEqual(more["matmul"] / same["matmul"], after["matmul"] / before["matmul"], places=2)

    def test_bad_input(self):
        base = ("--model", "gpt2", "--device", "h100-sxm")
        self.refused(2, "--device is missing", "--model", "gpt2")
        self.refused(2, "did you mean 'h100-sxm'", "--model", "gpt2", "--device", "h100-smx")
        self.refused(2, "did you mean", "--model", "gpt2", "--device", "h100-sxm", "--framework", "megatro")
        self.refused(5, "no fp8 rate of a100-sxm", "--model", "gpt2", "--device", "a100-sxm", "--dtype", "fp8")
        self.refused(5, "computes in fp32 and fp16", "--model", "gpt2", "--device", "v100-sxm", "--dtype", "bf16")
        self.refused(2, "--cp 3 cuts a sequence into 6 pieces", *base, "--cp", 3)
        self.refused(2, "--cp needs flash attention", *base, "--cp", 2, "--framework", "megatron-2021")
        self.refused(2, "--gpus 8 is not a multiple of --cp 3 x --tp 1 x --pp 1 = 3", *base, "--gpus", 8, "--cp", 3)
        self.refused(2, "--short-ends is about the stages", *base, "--short-ends")
        self.refused(2, "--scaling big", *base, "--gpus", "1,2", "--scaling", "big")
        self.refused(2, "--scaling needs several", *base, "--gpus", 2, "--scaling", "weak")
        self.refused(2, "--largest width", *base, "--largest", "width")
        self.refused(2, "one of them", *base, "--gpus", 2, "--largest", "batch", "--search")
        self.refused(2, "leave out --global-batch", *base, "--largest", "batch", "--global-batch", 8)
        self.refused(2, "did you mean 'bandwidth'", *base, "--what-if", "bandwith=2x")
        self.refused(2, "expected KEY=FACTORx", *base, "--what-if", "bandwidth=fast")
        self.refused(2, "needs --mtbf", *base, "--checkpoint", 60)
        self.refused(2, "--mtbf", *base, "--mtbf", -1)
        self.refused(2, "more ranks than can be counted", *base, "--dp", 2**24, "--tp", 2**12)
        self.refused(2, "must be at most", *base, "--dp", 2**40)
        self.refused(2, "", *base, "--batch", 2**62)
        self.refused(2, "", *base, "--global-batch", 2**64)
        self.refused(2, "is too large", *base, "--seq", 10**20)
        self.refused(2, "--network 0: not a number of bytes above 0", *base, "--network", 0)
        self.refused(2, "--tp 3 does not divide the 1024 tokens", *base, "--gpus", 3, "--tp", 3)
        self.refused(2, "does not divide the number of micro-batches in a step, 3", *base, "--pp", 2, "--interleave", 2,
                     "--gpus", 2, "--global-batch", 3)
        self.refused(2, "--gpus 3 is not a multiple of --tp 2 x --pp 1 = 2", *base, "--gpus", 3, "--tp", 2)
        self.refused(2, "--gpus 8 is not a multiple of --tp 1 x --pp 16 = 16", *base, "--gpus", 8, "--pp", 16)
        self.refused(2, "not --gpus 8", *base, "--gpus", 8, "--dp", 3)
        self.refused(2, "--zero must be at most 3", *base, "--zero", 4)
        self.refused(2, "--global-batch 7", *base, "--batch", 2, "--global-batch", 7)
        self.refused(2, "--explain mfu", *base, "--explain", "mfu")
        self.refused(2, "--search needs", *base, "--search")
        self.refused(2, "leave out --tp", *base, "--search", "--gpus", 4, "--tp", 2)
        peers = (*base, "--collectives", "peer-memory")
        self.refused(5, "within one host, for at most 8 ranks that map each other's memory, not for 16 ranks on 2 hosts of 8",
                     *peers, "--gpus", 16)
        self.refused(5, "not for 16 data-parallel ranks", *peers, "--gpus", 16, "--per-node", 16)
        self.refused(2, "plan supports default and peer-memory", *base, "--collectives", "few-blocks")
        self.refused(2, "is for --framework rooflm-fused", *peers, "--gpus", 2, "--framework", "torch-compile")
        self.refused(2, "--async-tp is about", *base, "--async-tp")
        self.refused(2, "--interleave is about", *base, "--interleave", 2)
        self.refused(2, "--heads 5", *base, "--heads", 5)
        self.refused(2, "--pp 13", *base, "--pp", 13, "--gpus", 13)
        self.refused(2, "--interleave", *base, "--pp", 2, "--interleave", 4, "--global-batch", 3)
        self.refused(2, "--tp 5", *base, "--tp", 5)
        self.refused(2, "", *base, "--d-model", 2**40, "--heads", 1)
        self.refused(2, "is more than 2147483647", *base, "--global-batch", 2**53 + 1)
        self.refused(2, "more than 1 EB", *base, "--memory-limit", "99999999999GB")
        self.refused(2, "--what-if has no meaning with --against", *base, "--against", "any", "--what-if", "link=2x")

    def test_a_search_says_what_it_does_not_read(self):
        done = rooflm("plan", "--model", "gpt2", "--device", "h100-sxm", "--gpus", 2, "--search", "--recompute", "none,full",
                      "--batch", "1,2", "--top", 3, "--format", "json")
        self.assertEqual(len(json.loads(done.stdout)), 3)
        for option in ("--recompute", "--batch"):
            self.assertIn(f"{option} is ignored", done.stderr)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
