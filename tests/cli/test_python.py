#!/usr/bin/env python3
"""The Python package: records as tables, prices, plans, errors.

Usage: test_python.py BINARY [unittest options]"""

import ctypes
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

# The package as it was built: beside the binary.
BINARY = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(BINARY.parent / "python"))
if not list((BINARY.parent / "python").glob("rooflm/_native*")):
    print("SKIPPED: the module was not built (no python3-dev or pybind11-dev, or sanitizers)")
    sys.exit(0)
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

    def changed(self, name, statement):
        """A copy of the record in which something was changed."""
        path = pathlib.Path(self.folder.name) / name
        path.write_bytes(self.record.read_bytes())
        with sqlite3.connect(path) as database:
            database.execute(statement)
            self.assertGreater(database.total_changes, 0)
        database.close()
        return path

    def test_records_are_tables(self):
        record = rooflm.open(self.record)
        bench = record.table("bench")
        self.assertEqual(bench.columns["engine"], ["eager", "fused"])
        self.assertTrue(all(ms > 0 for ms in bench.columns["step_ms_mean"]))
        self.assertEqual((bench.titles["step_ms_mean"], len(bench)), ("total", 2))
        self.assertEqual(len(record.table("bench", run="fused")), 1)
        self.assertEqual(len(record.table("bench", run=[1, 2])), 2)
        self.assertIn("overview.machine", [table.id for table in record.tables("overview")])
        self.assertEqual(len(record.table("kernels")), 0, "nothing of a GPU")
        self.assertTrue(record.verify())
        self.assertIn("bench", rooflm.views())
        with self.assertRaises(KeyError):
            bench.columns["engin"]

    def test_tables_are_read_by_other_libraries(self):
        """The buffers of the interchange protocol, read as such libraries do: by their addresses."""
        table = rooflm.Table("t", "Cells", {"name": ["a", None, "b\u00e9"], "n": [1, 2, 3], "s": [0.5, None, 2], "is": [True, False, None]})
        frame = table.__dataframe__()
        self.assertEqual((frame.num_rows(), frame.num_columns(), frame.column_names()), (3, 4, ["name", "n", "s", "is"]))

        def read(name):
            column = frame.get_column_by_name(name)
            buffers, (kind, _, code, _) = column.get_buffers(), column.dtype
            types = {"l": ctypes.c_int64, "g": ctypes.c_double, "b": ctypes.c_uint8, "u": ctypes.c_uint8}
            at = lambda buffer, item: list((item * (buffer.bufsize // ctypes.sizeof(item))).from_address(buffer.ptr))
            values = at(buffers["data"][0], types[code])
            if code == "u":
                ends = at(buffers["offsets"][0], ctypes.c_int64)
                values = [bytes(values[a:b]).decode() for a, b in zip(ends, ends[1:])]
            mask = at(buffers["validity"][0], ctypes.c_uint8) if buffers["validity"] else [1] * column.size()
            self.assertEqual(column.null_count, mask.count(0))
            return int(kind), [value if valid else None for value, valid in zip(values, mask)]

        self.assertEqual(read("name"), (21, ["a", None, "b\u00e9"]))
        self.assertEqual(read("n"), (0, [1, 2, 3]))
        self.assertEqual(read("s"), (2, [0.5, None, 2]))
        self.assertEqual(read("is"), (20, [1, 0, None]))
        self.assertEqual(frame.select_columns([1, 0]).column_names(), ["n", "name"])
        try:
            import pandas  # pylint: disable=import-outside-toplevel
        except ImportError:
            return
        self.assertEqual(pandas.api.interchange.from_dataframe(table)["n"].tolist(), [1, 2, 3])

    def test_tables_are_readable(self):
        shown = repr(rooflm.open(self.record).table("bench"))
        self.assertIn("(2 rows", shown)
        self.assertIn("eager", shown)
        self.assertTrue(all(len(line) <= 100 for line in shown.splitlines()[1:]), shown)
        self.assertEqual(repr(rooflm.Table("x", "", {})), "x (0 rows)")

    def test_tables_are_those_of_the_command_line(self):
        for view in ("bench", "samples"):
            shown = rooflm.command("report", self.record, view=view)[0]["tables"]
            tables = rooflm.open(self.record).tables(view)
            self.assertEqual([(t.id, t.title) for t in tables], [(t["id"], t["title"]) for t in shown])
            for table, other in zip(tables, shown):
                self.assertEqual([{key: value for key, value in row.items() if value is not None} for row in table],
                                 [{key: value for key, value in row.items() if value is not None} for row in other["rows"]])

    def test_a_record_that_was_changed_does_not_hold(self):
        changed = self.changed("changed.rooflm", "update sample set seconds = 3 * seconds where phase = 'backward'")
        self.assertFalse(rooflm.open(changed).verify())
        with self.assertRaises(rooflm.CheckFailed) as raised:
            rooflm.command("verify", changed)
        self.assertTrue(raised.exception.result)

    def test_prices_are_those_of_the_command_line(self):
        for more in ({}, {"engine": "eager", "dtype": "bf16", "arch": "gpt2"}, {"recompute": "full", "grad_accum": 2}, {"phase": "decode"}):
            priced = rooflm.price(**SMALL, **more)
            self.assertEqual(sum(priced["ops"].columns["matmul_flop"]), priced["totals"]["matmul_flop"])
            expected = rooflm.command("program", **SMALL, **more, totals=True, device="null")["totals"]
            for part in ("by_phase", "by_block"):
                self.assertEqual(priced["totals"][part], expected[part])
            for key in ("flop", "bytes", "launches", "ops"):
                self.assertEqual(priced["totals"][key], expected[key])
            for key, value in priced["totals"]["memory"].items():
                self.assertEqual(value, expected["memory"][key], key)
        on_gpu = rooflm.price(model="gpt2", batch=8, seq=1024, dtype="bf16", device="h100-sxm")
        self.assertAlmostEqual(sum(on_gpu["ops"].columns["roof_s"]), on_gpu["totals"]["roof_s"], delta=1e-3)
        self.assertGreater(on_gpu["totals"]["roof_s"], on_gpu["totals"]["matmul_flop"] / 1e15)

    def test_plans(self):
        plans = rooflm.plan(model="gpt2", device="h100-sxm", gpus=[1, 2])
        self.assertEqual([plan["gpus"] for plan in plans], [1, 2])
        self.assertGreater(plans[0]["step_s"], 0)

    def test_errors_have_types(self):
        for error, builtin, call in ((rooflm.UsageError, ValueError, lambda: rooflm.price(model="gpt3000")),
                                     (rooflm.UsageError, ValueError, lambda: rooflm.price(batch="many")),
                                     (rooflm.UsageError, ValueError, lambda: rooflm.price(bacth=4)),
                                     (rooflm.UsageError, ValueError, lambda: rooflm.open(self.record).table("opz")),
                                     (rooflm.Unavailable, RuntimeError, lambda: rooflm.price(dtype="fp8", device="a100-sxm")),
                                     (rooflm.UsageError, ValueError, lambda: rooflm.command("benhc")),
                                     (rooflm.InputError, OSError, lambda: rooflm.open("no-such.rooflm")),
                                     (rooflm.Unavailable, RuntimeError, lambda: rooflm.command("bench", device="cuda:77"))):
            with self.assertRaises(error) as raised:
                call()
            self.assertIsInstance(raised.exception, builtin)
            self.assertNotIn("rooflm: ", str(raised.exception)[:8])
        with self.assertRaises(rooflm.UsageError):
            rooflm.Record()
        for refused in ({"clip": -1}, {"clip": float("nan")}, {"phase": "decode", "grad_accum": 4}, {"grad_accum": 10**6}, {"grad_accum": 0}, {"tp": 5}):
            with self.assertRaises(rooflm.UsageError):
                rooflm.price(**SMALL, **refused)
        with self.assertRaises(rooflm.InputError):
            rooflm.open(b"\xff.rooflm")  # no UTF-8: the message has it replaced
        with self.assertRaises(rooflm.UsageError):
            rooflm.command("plan", model="gpt2", device="h100-sxm", help=True)

    def test_text_that_is_no_utf8_is_replaced(self):
        record = rooflm.open(self.changed("bytes.rooflm", "update run set label = cast(x'61ff62' as text)"))
        self.assertIn("a\ufffdb", str(list(record.table("bench"))) + str(record.tables("overview")))

    def test_an_interrupt_is_passed_on_and_waited_for(self):
        path = pathlib.Path(self.folder.name) / "interrupted.rooflm"
        code = f"import rooflm\nrooflm.command('bench', **{SMALL!r}, steps=10**9, no_peak=True, device='cpu', output={str(path)!r})"
        environment = {**os.environ, "PYTHONPATH": str(BINARY.parent / "python")}
        for whom in (os.kill, os.killpg):  # a notebook's kernel alone, all of a terminal
            path.unlink(missing_ok=True)
            process = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
            deadline = time.monotonic() + 60
            while not path.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(3)  # until a model this small has made steps, beside other tests, too
            whom(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=60)
            self.assertIn("KeyboardInterrupt", said)
            with sqlite3.connect(path) as database:
                self.assertEqual(database.execute("select status from run").fetchall(), [("interrupted",)])
                self.assertGreater(database.execute("select count(*) from sample").fetchone()[0], 0)
            database.close()


if __name__ == "__main__":
    os.environ["ROOFLM_BINARY"] = str(pathlib.Path(sys.argv[1]).resolve())
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
