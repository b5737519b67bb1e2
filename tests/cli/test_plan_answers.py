#!/usr/bin/env python3
"""What people ask of `rooflm plan`, each by one command: the answer is in a terminal of 80 columns.

Usage: test_plan_answers.py BINARY [unittest options]"""

import json
import os
import pathlib
import pty
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

import test_plan
from test_plan import plan, rooflm

EIGHT = ("--model", "llama3-8b", "--device", "h100", "--gpus", 8, "--seq", 4096)
ANSWERS = ["status", "step", "tokens/s", "MFU", "memory", "left", "days"]


def in_terminal(columns, *arguments):
    """What the command writes to a terminal of so many columns."""
    reader, writer = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}
    done = subprocess.Popen([test_plan.BINARY, "plan", *map(str, arguments)], stdout=writer, stderr=subprocess.DEVNULL,
                            env=environment)
    os.close(writer)
    text = b""
    while True:
        try:
            part = os.read(reader, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        text += part
    os.close(reader)
    assert done.wait() == 0
    return text.decode().replace("\r\n", "\n")


def titles(text):
    """Of the columns of the first table."""
    lines = text.splitlines()
    dashes = next(i for i, line in enumerate(lines) if re.fullmatch(r"[- ]*-[- ]*", line))
    return re.split(r"  +", lines[dashes - 1].strip())


class Answers(unittest.TestCase):
    def test_they_come_before_what_is_one(self):
        for columns in (80, 100):
            for options, more in (((*EIGHT, "--fsdp"), []), ((*EIGHT, "--fsdp", "--price", 2, "--tokens", "10B"), ["price, $"]),
                                  ((*EIGHT, "--tp", 2, "--zero", 1), [])):
                text = in_terminal(columns, *options)
                shown = titles(text)
                for answer in ANSWERS + more:
                    self.assertIn(answer, shown, text)
                for degree in ("dp", "cp", "tp", "pp", "zero"):
                    self.assertNotIn(degree, shown)
                self.assertLessEqual(max(map(len, text.splitlines())), columns, text)
        self.assertIn("dp4 tp2 zero1", text)

    def test_rows_that_differ_in_their_split_say_so(self):
        text = in_terminal(100, *EIGHT, "--tp", "1,2", "--zero", 1, "--global-batch", 8)
        self.assertIn("split", titles(text))
        self.assertRegex(text, r"(?m)^dp8 zero1 +planned")
        self.assertRegex(text, r"(?m)^dp4 tp2 zero1 +planned")

    def test_words_of_pytorch_are_what_is_here(self):
        for words, ours in ((("--fsdp",), ("--zero", 3)), (("--ddp",), ("--zero", 0)),
                            (("--fsdp", "--activation-checkpointing"), ("--zero", 3, "--recompute", "full"))):
            self.assertEqual(plan(*EIGHT, *words), plan(*EIGHT, *ours))
        self.assertEqual(plan(*EIGHT, "--ddp", "--fsdp"), plan(*EIGHT, "--zero", "0,3"))
        for words, said in ((("--fsdp", "--zero", 1), "--fsdp is --zero 3"), (("--ddp", "--zero", 1), "--ddp is --zero 0"),
                            (("--activation-checkpointing", "--recompute", "selective"), "is --recompute full")):
            done = rooflm("plan", *EIGHT, *words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)

    def test_devices_by_the_names_that_people_use(self):
        for name, key in (("H100", "h100-sxm"), ("a100-80gb", "a100-sxm"), ("A100 40GB", "a100-sxm-40gb"), ("4090", "rtx-4090"),
                          ("RTX_4090", "rtx-4090"), ("NVIDIA H200", "h200"), ("v100", "v100-sxm")):
            row, = plan("--model", "tiny", "--device", name, "--dtype", "fp16")
            self.assertEqual(row["device"], key)

    def test_tokens_and_prices_have_units(self):
        ten, = plan(*EIGHT, "--fsdp", "--tokens", "10B", "--price", "2.5EUR")
        plain, = plan(*EIGHT, "--fsdp", "--tokens", 10_000_000_000, "--price", 2.5)
        self.assertEqual((ten["tokens"], ten["price"], ten["currency"]), (plain["tokens"], plain["price"], "EUR"))
        self.assertEqual(plain["currency"], "$")
        for price, currency in (("2.5EUR", "EUR"), ("USD 2.5", "USD"), ("2.5 €", "€"), ("2e0", "$")):
            self.assertIn(f"price, {currency}", rooflm("plan", *EIGHT, "--fsdp", "--price", price).stdout)
        for bad in ("EUR", "inf", "2.5 3.5", "2-5", "2.5\x1b[31m", "1e400", "-1"):
            done = rooflm("plan", *EIGHT, "--price", bad)
            self.assertEqual((done.returncode, done.stderr.startswith("rooflm: --price ")), (2, True), bad)
        self.assertEqual(plan(*EIGHT, "--fsdp", "--tokens", "1.5T")[0]["tokens"], 1.5e12)
        for bad in ("10X", "B", "-1B"):
            self.assertEqual(rooflm("plan", *EIGHT, "--tokens", bad).returncode, 2, bad)

    def test_memory_is_explained_by_what_holds_it(self):
        row, = plan(*EIGHT, "--fsdp")
        done = rooflm("plan", *EIGHT, "--fsdp", "--explain", "peak_bytes", "--format", "json")
        terms = {term["term"]: term["bytes"] for term in json.loads(done.stdout)}
        peak = terms.pop("peak_bytes")
        self.assertLess(abs(peak - row["peak_bytes"]), 2)
        self.assertLess(abs(sum(terms.values()) - peak), len(terms))
        self.assertLess(abs(terms["activations"] - row["activation_bytes"]), 2)
        too_large = rooflm("plan", "--model", "llama3-70b", "--device", "h100", "--explain", "peak_bytes,step_s").stdout
        self.assertIn("bytes for each of the model's 70.6 G parameters", too_large)
        self.assertIn("so there is no step to explain", too_large)

    def test_whose_memory_it_is_is_said_where_no_framework_is_named(self):
        self.assertIn("rooflm's own engine", rooflm("plan", *EIGHT, "--fsdp").stdout)
        self.assertNotIn("rooflm's own engine", rooflm("plan", *EIGHT, "--fsdp", "--framework", "torchtitan").stdout)


class Documents(unittest.TestCase):
    def test_ten_questions_are_answered_as_printed(self):
        page = (pathlib.Path(__file__).resolve().parents[2] / "docs/plan.md").read_text(encoding="utf-8")
        asked = re.findall(r"^    \$ COLUMNS=80 rooflm plan (.*)\n((?:    .*\n)+)", page, re.MULTILINE)
        self.assertGreaterEqual(len(asked), 10)
        for options, shown in asked:
            with self.subTest(options=options):
                text = in_terminal(80, *shlex.split(options))
                at = 0
                for part in re.sub("(?m)^    ", "", shown).split("...\n"):
                    self.assertIn(part, text[at:])
                    at = text.index(part, at) + len(part)
                self.assertLess(text.index(shown.strip().splitlines()[0].strip()), 1)
                self.assertLessEqual(max(map(len, text.splitlines())), 80)


class Namesakes(unittest.TestCase):
    def test_a_preset_says_that_it_wins_over_a_directory(self):
        said = "--model gpt2 is the preset; the directory of that name is ./gpt2"
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "gpt2"))
            for models, count in (("gpt2", 1), ("gpt2,gpt2-medium", 1), ("gpt2-medium", 0)):
                done = subprocess.run([os.path.abspath(test_plan.BINARY), "plan", "--model", models, "--device", "h100,a100", "--seq",
                                       "128,256"], capture_output=True, text=True, cwd=folder, check=True)
                self.assertEqual(done.stderr.count(said), count, done.stderr)


class Inference(unittest.TestCase):
    ONE = ("--model", "llama3-8b", "--device", "h100", "--phase", "decode")

    def test_answers_are_in_80_columns(self):
        for options in (self.ONE, (*self.ONE, "--batch", "1,64"), ("--model", "llama3-70b", "--device", "h100", "--phase", "serve",
                                                                   "--weights", "fp8", "--tp", 2)):
            text = in_terminal(80, *options)
            for answer in ("status", "TTFT", "ITL", "tokens/s", "memory", "max B", "max T", "GPUs"):
                self.assertIn(answer, titles(text), text)
            self.assertLessEqual(max(map(len, text.splitlines())), 80, text)
        self.assertIn("bound by bytes of weights", in_terminal(80, *self.ONE))

    def test_formats_of_weights_are_read_faster(self):
        rows = plan(*self.ONE, "--weights", "bf16,int8,int4,nf4")
        self.assertEqual([row["weights"] for row in rows], ["bf16", "int8", "int4", "nf4"])
        times = [row["itl_s"] for row in rows[:3]]
        self.assertEqual(times, sorted(times, reverse=True))
        self.assertLess(rows[2]["weight_bytes"], 0.4 * rows[0]["weight_bytes"])
        parts = "weights_s cache_s activations_s arithmetic_s launches_s collectives_s host_s".split()
        for row in rows:
            self.assertAlmostEqual(sum(row[part] for part in parts) / row["itl_s"], 1, places=9)
            self.assertLess(row["tokens_per_s_low"], row["tokens_per_s"])
            self.assertLess(row["tokens_per_s"], row["tokens_per_s_high"])

    def test_what_does_not_fit_says_how_many_devices_it_needs(self):
        row, = plan("--model", "llama3-70b", "--device", "h100", "--phase", "serve")
        self.assertEqual((row["status"], row["tokens_per_s"], row["gpus_needed"]), ("oom", None, 2))
        fits, = plan("--model", "llama3-70b", "--device", "h100", "--phase", "serve", "--gpus", 2)
        self.assertEqual((fits["status"], fits["tp"]), ("planned", 2))

    def test_options_of_training_are_refused(self):
        serve = ("--model", "gpt2", "--device", "h100", "--phase", "serve")
        split = ("--model", "gpt2", "--device", "h100", "--phase", "decode")
        train = ("--model", "gpt2", "--device", "h100")
        experts = ("--model", "mixtral-8x7b", "--device", "h100", "--phase", "decode")
        for options, said in (((*self.ONE, "--fsdp"), "--fsdp is about training"), ((*self.ONE, "--pp", 2), "only --tp and --ep split it"),
                              ((*self.ONE, "--optimizer", "sgd"), "--optimizer is about training"),
                              ((*self.ONE, "--recompute", "full"), "--recompute is about training"),
                              ((*self.ONE, "--output-len", 5), "about --phase serve"), ((*self.ONE, "--weights", "int3"), "int3"),
                              ((*self.ONE, "--framework", "megatron"), "megatron"),
                              ((*train, "--weights", "int4"), "--weights is about inference"),
                              ((*train, "--phase", "train", "--concurrency", 4), "--concurrency is about inference"),
                              ((*serve, "--batch", 8), "it is --concurrency"),
                              ((*split, "--tp", 5), "--tp 5 does not divide the 12 heads of gpt2"),
                              ((*serve, "--output-len", 1), "--seq 1024 and --output-len 1 are beyond the 1024 positions of gpt2"),
                              ((*serve, "--output-len", 2 ** 63 - 1), "positions of gpt2"),
                              ((*serve[2:], "--model", "small", "--arch", "llama", "--output-len", 2 ** 63 - 1), "beyond the")):
            done = rooflm("plan", *options)
            self.assertEqual((done.returncode, said in done.stderr, done.stderr.count("\n")), (2, True, 1), done.stderr)
        done = rooflm("plan", *experts, "--tp", 2)
        self.assertEqual((done.returncode, "experts of mixtral-8x7b cannot be split" in done.stderr), (5, True), done.stderr)
        for options, said in ((("--ep", 3, "--batch", 3), "--ep 3 does not divide the 8 experts"), (("--ep", 4, "--batch", 2), "--ep 4 does not divide the 2 texts"),
                              (("--ep", 2, "--gpus", 4), "--gpus 4: one copy"), (("--expert-imbalance", 2), "needs --ep")):
            done = rooflm("plan", *experts, *options)
            self.assertEqual((done.returncode, said in done.stderr), (2, True), done.stderr)
        longer, = plan(*serve, "--positions", 4096)
        self.assertEqual(longer["status"], "planned")

    def test_ranks_share_experts(self):
        """Each has some of them, and texts of its own: rows of all ranks travel to the experts and back."""
        mixtral = ("--model", "mixtral-8x7b", "--device", "h200", "--phase", "decode", "--seq", 1024)
        one, two, eight = (plan(*mixtral, "--batch", 64, "--ep", ep)[0] for ep in (1, 2, 8))
        layers, d_model, d_ff, experts = 32, 4096, 14336, 8
        all_experts = 2 * layers * experts * 3 * d_model * d_ff
        for row, ranks in ((two, 2), (eight, 8)):
            self.assertAlmostEqual((one["weight_bytes"] - row["weight_bytes"]) / (all_experts * (1 - 1 / ranks)), 1, delta=0.001)
            self.assertAlmostEqual(row["cache_bytes"] / (one["cache_bytes"] / ranks), 1, delta=0.001)
            self.assertEqual((row["ep"], row["tp"], row["batch"]), (ranks, 1, 64))
            self.assertAlmostEqual(row["tokens_per_s"] * row["itl_s"], 64, delta=0.01)
            self.assertGreater(row["collectives_s"], 0)
            self.assertLess(row["weights_s"], 1.1 * one["weights_s"] / ranks ** 0.5)
        self.assertEqual(plan(*mixtral, "--batch", 64, "--gpus", 8), [eight])
        prefill = (*mixtral[:4], "--phase", "prefill", "--seq", 1024, "--batch", 8, "--ep", 8)
        even, uneven = (plan(*prefill, "--expert-imbalance", more)[0] for more in (1, 2))
        self.assertGreater(uneven["ttft_s"], 1.2 * even["ttft_s"])
        near, far = (plan(*mixtral, "--batch", 64, "--ep", 8, "--per-node", each)[0] for each in (8, 4))
        self.assertGreater(far["collectives_s"], near["collectives_s"])
        small, = plan("--model", "mixtral-8x7b", "--device", "h100", "--phase", "serve")
        self.assertEqual((small["status"], small["gpus_needed"]), ("oom", 2))

    def test_a_dry_run_plans_nothing(self):
        done = rooflm("plan", *self.ONE, "--batch", "1,2", "--dry-run")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("plan 2 configurations", done.stdout)
        self.assertNotIn("TTFT", done.stdout)


class Adapters(unittest.TestCase):
    def test_frozen_weights_have_no_gradients(self):
        options = ("--model", "llama3-8b", "--device", "h100", "--framework", "torchtune", "--batch", 2, "--seq", 2048,
                   "--recompute", "full", "--memory-limit", "1TB")
        whole, = plan(*options)
        some, = plan(*options, "--lora", 8)
        more, = plan(*options, "--lora", "64,targets=all-linear")
        self.assertLess(some["optimizer_bytes"], 0.01 * whole["optimizer_bytes"])
        self.assertLess(some["step_s"], 0.9 * whole["step_s"])
        frozen_share = some["mfu"] * some["step_s"] / (whole["mfu"] * whole["step_s"])
        self.assertAlmostEqual(frozen_share, 4 / 6, delta=0.03)  # and attention, which has no weights
        self.assertLess(some["peak_bytes"], 0.5 * whole["peak_bytes"])
        self.assertGreater(more["optimizer_bytes"], 20 * some["optimizer_bytes"])
        narrow, = plan(*options, "--states", "8bit")
        self.assertLess(narrow["optimizer_bytes"], 0.6 * whole["optimizer_bytes"])

    def test_magnitudes_cost_an_activation_and_little_else(self):
        options = ("--model", "llama3-8b", "--device", "h100", "--batch", 1, "--seq", 2048)
        lora, = plan(*options, "--lora", 8)
        dora, = plan(*options, "--lora", "8,dora")
        magnitudes = 32 * (4096 + 1024)
        self.assertAlmostEqual(dora["optimizer_bytes"] - lora["optimizer_bytes"], 8 * magnitudes)
        self.assertLess(dora["weight_bytes"] - lora["weight_bytes"], 20 * magnitudes)
        kept = 32 * 2048 * 6144 * 2  # queries, keys and values before they are scaled
        self.assertAlmostEqual(dora["peak_bytes"] - lora["peak_bytes"], kept, delta=0.1 * kept)
        self.assertLess(dora["step_s"], 1.15 * lora["step_s"])

    def test_frozen_weights_may_be_packed(self):
        options = ("--model", "llama3-8b", "--device", "h100", "--batch", 1, "--seq", 2048, "--recompute", "full")
        wide, = plan(*options, "--lora", 8)
        packed, = plan(*options, "--lora", 8, "--base", "nf4")
        layers = 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336)  # numbers of their matrices
        saved = layers * (2 - (4 + 8 / 64 + 64 / 4096) / 8)
        self.assertAlmostEqual(wide["weight_bytes"] - packed["weight_bytes"], saved, delta=0.001 * saved)
        self.assertAlmostEqual(packed["optimizer_bytes"], wide["optimizer_bytes"])
        self.assertLess(packed["peak_bytes"], 7.4 * 2 ** 30)
        for more, says in ((("--base", "nf4"), "train adapters beside them"), (("--lora", 8, "--base", "nf4", "--tp", 2), "leave out"),
                           (("--lora", 8, "--base", "nf5"), "did you mean 'nf4'"),
                           (("--lora", 8, "--base", "nf4", "--phase", "decode"), "about training")):
            done = rooflm("plan", *options[:-2], *more)
            self.assertNotEqual(done.returncode, 0, more)
            self.assertIn(says, done.stderr + done.stdout)


class Experts(unittest.TestCase):
    MIXTRAL = ("--model", "mixtral-8x7b", "--device", "h100", "--framework", "megatron", "--seq", 4096, "--zero", 1)

    def test_they_are_split_in_every_direction(self):
        whole, = plan(*self.MIXTRAL, "--gpus", 64, "--ep", 8, "--memory-limit", "1TB")
        for split in (("--tp", 2), ("--tp", 2, "--expert-tp", 2), ("--pp", 4, "--global-batch", 64),
                      ("--tp", 2, "--pp", 4, "--global-batch", 64)):
            row, = plan(*self.MIXTRAL, "--gpus", 64, "--ep", 8, "--memory-limit", "1TB", *split)
            self.assertEqual(row["status"], "planned")
            self.assertLess(row["weight_bytes"], 0.75 * whole["weight_bytes"] if "--pp" in split else whole["weight_bytes"] * 1.01)

    def test_room_is_for_the_rows_that_come(self):
        own, theirs = (plan("--model", "mixtral-8x7b", "--device", "h100", "--framework", name, "--seq", 4096, "--zero", 1,
                            "--gpus", 8, "--ep", 8, "--memory-limit", "1TB")[0] for name in ("rooflm-fused", "megatron"))
        self.assertGreater(own["activation_bytes"], 1.5 * theirs["activation_bytes"])

    def test_the_busiest_rank_is_waited_for(self):
        even, uneven = (plan(*self.MIXTRAL, "--gpus", 64, "--ep", 8, "--memory-limit", "1TB", "--expert-imbalance", x)[0]
                        for x in (1, 1.5))
        self.assertGreater(uneven["step_s"], 1.1 * even["step_s"])
        self.assertGreater(uneven["peak_bytes"], even["peak_bytes"])
        self.assertEqual(rooflm("plan", *self.MIXTRAL, "--ep", 8, "--expert-imbalance", 0.5).returncode, 2)
        alone = rooflm("plan", *self.MIXTRAL, "--expert-imbalance", 1.5)
        self.assertEqual((alone.returncode, "needs --ep" in alone.stderr), (2, True))

    def test_rows_between_nodes_take_longer(self):
        near, far = (plan(*self.MIXTRAL, "--gpus", 8, "--ep", 8, "--memory-limit", "1TB", "--per-node", each)[0] for each in (8, 4))
        self.assertGreater(far["communication_s"], 2 * near["communication_s"])


if __name__ == "__main__":
    test_plan.BINARY = sys.argv.pop(1)
    unittest.main()
