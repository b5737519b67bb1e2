#!/usr/bin/env python3
"""The Python package: records as tables, prices, plans, errors.

Usage: test_python.py BINARY [unittest options]"""

import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import rooflm  # noqa: E402  pylint: disable=wrong-import-position

SMALL = {"model": "tiny", "layers": 2, "d_model": 64, "d_ff": 128, "heads": 2, "vocab": 256, "batch": 2, "seq": 32}


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.record = pathlib.Path(cls.folder.name) / "a.rooflm"
        rows = rooflm.command("bench", **SMALL, engine=["eager", "fused"], device="cpu", steps=2, warmup=0, no_peak=True, output=cls.record)
        assert [row["engine"] for row in rows] == ["eager", "fused"], rows

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_records_are_tables(self):
        record = rooflm.open(self.record)
        bench = record.view("bench")
        self.assertEqual(bench.column("engine"), ["eager", "fused"])
        self.assertTrue(all(ms > 0 for ms in bench.column("step_ms_mean")))
        self.assertEqual(len(record.view("bench", run="fused")), 1)
        self.assertIn("overview.machine", record.tables("overview"))
        self.assertEqual(len(record.view("kernels")), 0, "nothing of a GPU")
        self.assertTrue(record.verify())
        with self.assertRaises(KeyError):
            bench.column("engin")

    def test_a_record_that_was_changed_does_not_hold(self):
        import sqlite3  # pylint: disable=import-outside-toplevel
        changed = pathlib.Path(self.folder.name) / "changed.rooflm"
        changed.write_bytes(self.record.read_bytes())
        with sqlite3.connect(changed) as database:
            database.execute("update sample set seconds = 3 * seconds where phase = 'backward'")
            self.assertGreater(database.total_changes, 0)
        database.close()
        self.assertFalse(rooflm.open(changed).verify())

    def test_prices_and_plans(self):
        priced = rooflm.price(**SMALL, device="null")
        self.assertEqual(sum(op["matmul_flop"] for op in priced["ops"]), priced["totals"]["matmul_flop"])
        twice = rooflm.price(**{**SMALL, "batch": 4}, device="null")
        self.assertEqual(twice["totals"]["by_phase"]["forward"]["matmul_flop"], 2 * priced["totals"]["by_phase"]["forward"]["matmul_flop"])
        plans = rooflm.plan(model="gpt2", device="h100-sxm", gpus=[1, 2])
        self.assertEqual([plan["gpus"] for plan in plans], [1, 2])
        self.assertGreater(plans[0]["step_s"], 0)

    def test_errors_have_types(self):
        for error, builtin, call in ((rooflm.UsageError, ValueError, lambda: rooflm.price(model="gpt3000")),
                                     (rooflm.UsageError, ValueError, lambda: rooflm.command("benhc")),
                                     (rooflm.InputError, OSError, lambda: rooflm.open("no-such.rooflm")),
                                     (rooflm.Unavailable, RuntimeError, lambda: rooflm.command("bench", device="cuda:77"))):
            with self.assertRaises(error) as raised:
                call()
            self.assertIsInstance(raised.exception, builtin)
            self.assertNotIn("rooflm: ", str(raised.exception)[:8])
        with self.assertRaises(rooflm.UsageError):
            rooflm.Record()


if __name__ == "__main__":
    os.environ["ROOFLM_BINARY"] = str(pathlib.Path(sys.argv[1]).resolve())
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
