"""rooflm record: what the operators and kernels of a recorded program have to do, from streams."""
import json
import os
import sqlite3
import sys
import unittest

import streams

ROOFLM = os.path.abspath(sys.argv.pop(1))


class Prices(streams.Case):
    binary = ROOFLM

    def test_operators_have_prices_and_roofs(self):
        stream = streams.training_run()
        stream.facts.update({"device cuda:0": "NVIDIA H200", "device cuda:7": "NVIDIA H200"})
        matrix = [["bfloat16", [512, 768]], ["bfloat16", [768, 768]]]
        for number, (phase, count) in enumerate((("forward", 1), ("backward", 2))):
            for layer in range(2):
                stream.facts[f"work {number}{layer}"] = streams.operator("aten::mm", phase, f"b.{layer}.m", matrix,
                                                                         [["bfloat16", [512, 768]]], count)
        stream.facts["work 9"] = streams.operator("flash::forward", "forward", "b.0.a", matrix, matrix)
        stream.facts["work 8"] = streams.operator("aten::mm", "forward", "b.0.m", [["bfloat16", [-1, 2]]], [])
        stream.facts["work 7"] = "{"
        said = self.import_stream(stream)
        self.assertIn("calls of flash::forward have no price", said)
        self.assertIn("2 notes of operators cannot be read", said)
        # Devices that are there and did nothing are not named.
        self.assertEqual(self.rows("SELECT key, value FROM environment WHERE key LIKE 'device%'"), [("device cuda:0", "NVIDIA H200")])
        flop = 2 * 512 * 768 * 768
        self.assertEqual(self.rows("SELECT matmul_flop, dtype, shapes FROM op WHERE scope = 'h.0/m' ORDER BY phase DESC"),
                         [(flop, "bf16", "[512,768] x [768,768]"), (2 * flop, "bf16", "[512,768] x [768,768]")])
        self.assertEqual(self.rows("SELECT value FROM fact WHERE key = 'matmul_flop'"), [(6.0 * flop,)])
        rate = self.rows("SELECT value FROM ceiling WHERE dtype = 'bf16' AND what = 'matmul' AND source = 'catalog'")[0][0]
        roofs = dict(self.rows("SELECT subject, value FROM prediction WHERE quantity = 'roof_s'"))
        self.assertAlmostEqual(roofs["step"], 6 * flop / rate, delta=1e-9)
        table = self.rooflm("report", "x.rooflm", "--view", "roofline", "--format", "csv").stdout
        self.assertIn("matmul bf16", table)

    def test_what_is_not_known_of_kernels_of_triton_is_said(self):
        """Of eleven kernels two are of a compiled module, and one is of the program itself."""
        stream = streams.training_run(layers=1)
        stream.facts["device cuda:0"] = "NVIDIA H200"
        stream.numbers["triton_poi_fused_add_0"] = stream.numbers.pop("softmax")
        stream.facts["work 0"] = streams.operator("triton::mine", "forward", "b.0", [["float32", [64, 64]]], [], calls=[1])
        stream.operator_range(1, ["residual"], step=1)
        self.import_stream(stream)
        overview = self.rooflm("report", "x.rooflm", "--view", "overview").stdout
        self.assertIn("; 18.2% is from torch.compile graphs: their kernels count for the compiled module", overview)
        self.assertIn("; 9.1% is from the program's Triton kernels, priced as if they touched all of each tensor once", overview)
        stream.facts["work 0"] = streams.operator("triton::mine", "forward", "b.0", [["float32", [64, 64]]], [["float32", [64, 64]]], calls=[1])
        self.import_stream(stream)
        self.assertNotIn("priced as if", self.rooflm("report", "x.rooflm", "--view", "overview").stdout)

    def test_each_kernel_has_the_price_of_the_call_that_launched_it(self):
        """The backward pass of a module has two GEMMs, and neither does the work of both."""
        stream = streams.training_run(layers=1)
        stream.facts["device cuda:0"] = "NVIDIA H200"
        size, each = 512, 2 * 512**3
        matrix = [["bfloat16", [size, size]]]
        for number, (op, phase, module, kernels) in enumerate((
                ("aten::mm", "forward", "b.0.m", ["gemm_m"]), ("aten::mm", "backward", "b.0.m", ["back.m"]),
                ("aten::linear", "backward", "b.0.a", ["back.a"]), ("mine::loss", "forward", "", ["loss"]))):
            note = json.loads(streams.operator(op, phase, module, 2 * matrix, matrix, calls=[number + 1]))
            stream.facts[f"work {number}"] = json.dumps(note)
            stream.operator_range(number + 1, kernels, step=1)
        said = self.import_stream(stream)
        self.assertIn("calls of mine::loss have no price", said)
        works = self.rows("SELECT DISTINCT n.text, w.call, w.matmul_flop, w.dtype FROM activity a JOIN activity_name n USING"
                          " (run, name) JOIN activity_work aw ON aw.run = a.run AND aw.activity = a.id"
                          " JOIN kernel_work w ON w.run = a.run AND w.work = aw.work ORDER BY 1")
        self.assertEqual(works, [("back.a", "aten::linear", float(each), "bf16"), ("back.m", "aten::mm", float(each), "bf16"),
                                 ("gemm_m", "aten::mm", float(each), "bf16")])
        priced = self.rows("SELECT COUNT(*) FROM activity_work")[0][0]
        self.assertEqual(priced, 8 * 3, "steps learn from the one that was noted")
        overview = self.rooflm("report", "x.rooflm", "--view", "overview").stdout
        self.assertRegex(overview, r"device time +\d+\.\d% has a module, 100.0% a phase, \d+\.\d% a price; "
                                   r"without a module: loss \d+\.\d%; without a price: ")
        unknown = self.rooflm("report", "x.rooflm", "--view", "kernels", "--format", "csv").stdout
        self.assertIn("Kernels without a module, a phase or a price", unknown)
        self.assertIn('"module, price",loss', unknown)
        gemms = unknown.split("GEMM kernels", 1)[1].split("\n\n")[0].splitlines()
        columns = gemms[1].split(",")
        rates = {row.split(",")[columns.index("name")]: row.split(",")[columns.index("flop_per_s")] for row in gemms[2:]}
        self.assertAlmostEqual(float(rates["gemm_m"]), each / 6e-6, delta=1e9)
        self.assertEqual(rates["gemm_head"], "")
        # Without a rate of the L2 cache, what fits into it has no roof, and sums say so.
        self.assertEqual(self.rows("SELECT value FROM fact WHERE key = 'roof_leaves_out'"), [])
        small = json.loads(streams.operator("aten::add", "forward", "b.0.a", 2 * matrix, matrix, calls=[9]))
        stream.facts.update({"device cuda:0": "NVIDIA A100-SXM4-80GB", "work 4": json.dumps(small)})
        self.import_stream(stream)
        [(left_out, why)] = self.rows("SELECT value, text FROM fact WHERE key = 'roof_leaves_out'")
        self.assertEqual(left_out, 3.0 * 2 * size * size)
        self.assertIn("1 calls of operators, 1.57 MB: they fit in the L2 cache, whose rate on this device is not known", why)
        self.assertIn("roof leaves out", self.rooflm("report", "x.rooflm", "--view", "overview").stdout)
        # 1.2 times what the device does for long is against the law, unless a burst was measured to do as much.
        with sqlite3.connect(self.folder / "x.rooflm") as record:
            record.execute("UPDATE kernel_work SET needed_flop = ?", (1.2 * 312e12 * 6e-6,))
        record.close()
        sustained = self.rooflm("verify", "x.rooflm")
        self.assertEqual(sustained.returncode, 1, sustained.stdout)
        with sqlite3.connect(self.folder / "x.rooflm") as record:
            (columns,) = record.execute("SELECT group_concat(name) FROM pragma_table_info('ceiling') WHERE name NOT IN"
                                        " ('id', 'what', 'value', 'ci_high')").fetchone()
            record.execute(f"INSERT INTO ceiling (what, value, ci_high, {columns}) SELECT 'matmul burst', 1.2 * value, 1.2 * value,"
                           f" {columns} FROM ceiling WHERE what = 'matmul' AND dtype = 'bf16'")
        record.close()
        burst = self.rooflm("verify", "x.rooflm")
        self.assertEqual(burst.returncode, 0, burst.stdout)
        # A price that no kernel can keep is told.
        with sqlite3.connect(self.folder / "x.rooflm") as record:
            record.execute("UPDATE kernel_work SET needed_flop = 100 * needed_flop")
        record.close()
        broken = self.rooflm("verify", "x.rooflm")
        self.assertEqual(broken.returncode, 1)
        self.assertIn("no kernel beats the peak of its dtype", broken.stdout)

    def test_kernels_of_jax_are_of_the_name_scopes_of_their_instructions(self):
        stream = streams.Stream()
        stream.facts["device cuda:0"] = "NVIDIA H200"
        scopes = ["jit(step)/jvp(layers_0)/mlp/dot_general", "jit(step)/jvp(layers_1)/mlp/dot_general",
                  "jit(step)/transpose(jvp(layers_1))/mlp/dot_general", "jit(step)/sub"]
        names = ["gemm_fusion_dot_4", "gemm_fusion_dot_9", "custom_call_2", "loop_subtract_fusion"]
        stream.facts["hlo 0"] = "jit_step"
        for number, (name, scope) in enumerate(zip(names, scopes)):
            stream.facts[f"hlo 0 {number}"] = json.dumps(
                {"name": name, "call": "__cublas$gemm" if "custom" in name else "fusion", "op": scope, "at": "", "bytes": 1e6,
                 "flop": 1e9 if number < 3 else 0, "needed": 1e9 if number < 3 else 0, "dtype": "bf16" if number < 3 else "",
                 "shapes": "[8]"})
        # Identical instructions share one kernel; a library's has a name of its own.
        ran = ["gemm_fusion_dot_4", "gemm_fusion_dot_4", "nvjet_tst_128x64", "loop_subtract_fusion"]
        now = 1_000_000
        for _ in range(6):
            stream.row(streams.RANGE, "TSL:XlaModule:#hlo_module=jit_step,program_id=7#", now, now + 50_000, stream.process)
            stream.replay(now + 1000, [(i, streams.KERNEL, name, now + 60_000 * (i + 1), now + 60_000 * i + 90_000)
                                       for i, name in enumerate(ran)])
            now += 400_000
        self.import_stream(stream)
        self.assertEqual(self.rows("SELECT phase, scope, matmul_flop FROM op ORDER BY op"),
                         [("forward", "h.0/mlp", 10**9), ("forward", "h.1/mlp", 10**9), ("backward", "h.1/mlp", 10**9),
                          ("optimizer", "other", 0)])
        overview = self.rooflm("report", "x.rooflm", "--view", "overview").stdout
        self.assertRegex(overview, r"75\.0% has a module, 100.0% a phase, 100.0% a price; without a module: loop_subtract_fusion")


if __name__ == "__main__":
    unittest.main()
