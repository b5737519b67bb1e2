#!/usr/bin/env python3
"""scripts/gpu_sweep, with a peer and a binary that only pretend: who waits for whom, what fits together, what is tried again.

Usage: test_gpu_sweep.py [unittest options]"""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "gpu_sweep"
# Writes when it began, when it was ready to be timed, and when it had been. Without room beside others a case of fp32 fails.
PEER = """
import json, os, sys, time
c = json.loads(sys.argv[1])
case = f"{c['precision']} B{c['batch']} T{c['seq']} V{c['vocab']}"
def note(what): open(os.environ["NOTES"], "a").write(json.dumps([time.monotonic(), what, case]) + "\\n")
tries = os.path.join(os.environ["TRIES"], case.replace(" ", "_"))
open(tries, "a").write("x")
note("begin")
if c["precision"] == "fp32" and os.path.getsize(tries) == 1:
    raise SystemExit("out of memory")
print("ready", flush=True)
sys.stdin.readline()
note("go")
note("end")
print(json.dumps({"step": 10.0, "peak_mib": 1000.0, "status": "success"}))
"""
BINARY = """#!/usr/bin/env python3
import json, os, sys
if sys.argv[1] == "info":
    print(json.dumps({"dtypes": {"cuda": ["fp32", "bf16x6", "bf16"]}}))
    sys.exit()
open(os.environ["NOTES"] + ".dtypes", "a").write(sys.argv[sys.argv.index("--dtype") + 1] + "\\n")
print(json.dumps([{"status": "success", "step_ms_median": 8.0, "peak_bytes": 5e8, "matmul_flops": 1e12}]))
"""


def script():
    loader = importlib.machinery.SourceFileLoader("gpu_sweep", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_sweep", loader))
    loader.exec_module(module)
    return module


class Sweep(unittest.TestCase):
    def test_the_same_seed_draws_the_same_cases_and_batches_hold_each_once_where_it_fits(self):
        sweep = script()
        cases = sweep.draw_cases(3, 40, 80e9)
        self.assertEqual(cases, sweep.draw_cases(3, 40, 80e9))
        self.assertNotEqual(cases, sweep.draw_cases(4, 40, 80e9))
        for at_once in (1, 8):
            batches = sweep.batches_of(cases, at_once, 80e9)
            self.assertCountEqual([sweep.name_of(case) for case in cases], [sweep.name_of(case) for batch in batches for case in batch])
            self.assertLessEqual(max(map(len, batches)), at_once)
            for batch in batches:
                needed = [sweep.peer_bytes(case) for case in batch]
                self.assertTrue(len(batch) == 1 or sum(needed) + max(needed) < 80e9)
        self.assertLess(len(sweep.batches_of(cases, 8, 80e9)), 40)

    def test_peers_get_ready_together_and_are_timed_one_by_one(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "peer.py").write_text(PEER)
            (folder / "rooflm").write_text(BINARY)
            (folder / "rooflm").chmod(0o755)
            (folder / "tries").mkdir()
            environment = dict(os.environ, NOTES=str(folder / "notes"), TRIES=str(folder / "tries"))
            done = subprocess.run([sys.executable, SCRIPT, folder / "rooflm", "--seed", "4", "--count", "12", "--memory", "80", "--peer",
                                   folder / "peer.py", "--at-once", "4", "--rows", folder / "rows.json", "--no-blame"],
                                  capture_output=True, text=True, timeout=120, env=environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = json.loads((folder / "rows.json").read_text())
            notes = [json.loads(line) for line in (folder / "notes").read_text().splitlines()]
            tries = {path.name: path.stat().st_size for path in (folder / "tries").iterdir()}
            dtypes = (folder / "notes.dtypes").read_text().split()
        self.assertEqual(len(rows), 12)
        self.assertEqual({row["peer_ms"] for row in rows.values()}, {10.0})
        self.assertEqual({row["ratio"] for row in rows.values() if "r" not in row["marks"]}, {0.8})
        self.assertIn("median 0.80", done.stdout)
        # Ours run in bf16x6 where the case is fp32, and say so.
        self.assertEqual(dtypes.count("bf16x6"), sum(" fp32 " in name for name in rows))
        self.assertNotIn("fp32", dtypes)
        self.assertTrue(all(("6" in row["marks"]) == (" fp32 " in name) for name, row in rows.items()))
        # Timed: no other one begins or is timed meanwhile.
        timed = [(first, last) for first, what, case in notes if what == "go" for last, end, other in notes if end == "end" and other == case]
        for first, last in timed:
            self.assertEqual([what for moment, what, _ in notes if first < moment < last], [])
        # Some were ready beside each other: one had begun before another one ended.
        self.assertTrue(any(notes[i][1] == notes[i + 1][1] == "begin" for i in range(len(notes) - 1)))
        # One that failed beside others was tried again, once, alone; the others were not.
        self.assertEqual({count for case, count in tries.items() if case.startswith("fp32")}, {2})
        self.assertEqual({count for case, count in tries.items() if not case.startswith("fp32")}, {1})


if __name__ == "__main__":
    unittest.main()
