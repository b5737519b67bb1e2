#!/usr/bin/env python3
"""Imports: what rooflm exported comes back, traces of other tools are read, lies in them do no harm.

Usage: test_imports.py BINARY SCHEMA [unittest options]"""

import contextlib
import gzip
import json
import pathlib
import pickle
import sqlite3
import subprocess
import sys
import tempfile
import unittest

import foreign_records as made

BINARY = ""
SCHEMA = ""
STORED = pathlib.Path(__file__).resolve().parents[1] / "goldens" / "torch_2.11"
KERNEL = {"ph": "X", "cat": "kernel", "name": "void gemm<float>(int)", "pid": 0, "tid": 7, "ts": 10.5, "dur": 2.25,
          "args": {"device": 0, "stream": 7, "correlation": 5, "grid": [8, 1, 1], "block": [128, 1, 1],
                   "registers per thread": 40, "est. achieved occupancy %": 50}}
CALL = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 900, "tid": 901, "ts": 5, "dur": 1,
        "args": {"correlation": 5}}


def rooflm(*arguments):
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=300)


class Imports(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.record = self.folder / "out.rooflm"

    def take(self, name, content, code=0, says=(), more=()):
        """Writes the file, imports it, and returns the activities of the record."""
        path = self.folder / name
        if isinstance(content, (dict, list)):
            content = json.dumps(content)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.record.unlink(missing_ok=True)
        result = rooflm("import", path, "-o", self.record, *more)
        self.assertEqual(result.returncode, code, result.stderr)
        for text in says:
            self.assertIn(text, result.stderr)
        if code:
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertFalse(self.record.exists())
            return []
        return made.activities(self.record)

    def query(self, sql):
        with contextlib.closing(sqlite3.connect(self.record)) as record:
            return record.execute(sql).fetchall()

    def check_views(self):
        """Every view and law works on what was imported."""
        shown = rooflm("report", self.record)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertNotIn("Nothing to show", shown.stdout)
        for arguments in (("report", self.record, "--format", "csv"), ("verify", self.record),
                          ("report", self.record, "--view", "activities,kernels,device,launches,memory")):
            result = rooflm(*arguments)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_parts_of_ops_have_no_meaning_without_ops(self):
        self.take("trace.json", {"traceEvents": [KERNEL, CALL]})
        for option, value in (("--phase", "optimiser"), ("--scope", "zz"), ("--op", "matmul")):
            result = rooflm("report", self.record, option, value)
            self.assertEqual(result.returncode, 2, result.stdout)
            self.assertIn(f"the record has no ops: {option} has no meaning", result.stderr)

    def export_and_import(self, record, form):
        path = self.folder / ("exported." + form)
        self.assertEqual(rooflm("export", record, "--format", form, "-o", path, "--overwrite").returncode, 0)
        result = rooflm("import", path, "-o", self.record)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.check_views()
        return made.activities(self.record)

    def test_a_chrome_trace_comes_back(self):
        for graph in (False, True):
            record = made.write_gpu_record(self.folder / f"{graph}.rooflm", SCHEMA, graph=graph)
            kept = [(kind, text.removesuffix("_v7000"), *rest[:-1]) for kind, text, *rest in made.activities(record)]
            back = [row[:-1] for row in self.export_and_import(record, "kineto") if row[0] != "op"]
            # Ops and phases that a thread saw are ranges of their own there.
            self.assertEqual(back, kept)
            self.assertEqual(self.query("SELECT step, phase, kind, ROUND(1e9 * seconds) FROM sample"),
                             [(3, "step", "traced", 90_001), (4, "step", "traced", 90_001)])
            work = self.query("SELECT step, COUNT(*) FROM activity JOIN lane USING (run, lane) WHERE kind = 'device'"
                              " GROUP BY step")
            self.assertEqual(work, [(3, 7), (4, 7)])
            self.assertEqual(self.query("SELECT value FROM meta WHERE key = 'epoch_utc_ns'"), [("1795348288298241659",)])
            self.assertEqual(self.query("SELECT bytes, live_bytes, device FROM memory_event ORDER BY seq")[:2],
                             [(1000, 1000, "cuda:0"), (4096, 5096, "cuda:0")])
            extra = json.loads(self.query("SELECT text FROM activity JOIN activity_extra USING (run, extra)")[0][0])
            self.assertEqual((extra["grid"], extra["registers"], extra["shared_dynamic"], extra["occupancy"]),
                             ([8, 2, 1], 40, 3072, 0.5))
            self.record.unlink()

    def test_a_database_of_nsys_comes_back(self):
        record = made.write_gpu_record(self.folder / "a.rooflm", SCHEMA)
        back = self.export_and_import(record, "nsys-sqlite")
        kept = [(kind, text.removesuffix("_v7000"), *rest[:-1]) for kind, text, *rest in made.activities(record)]
        ranges = {row[1] for row in back} - {row[1] for row in kept}
        self.assertEqual(ranges, {"forward/attention/qk", "forward/loss", "backward/attention/qk", "optimizer/optimizer"})
        self.assertEqual([row[:-1] for row in back if row[1] not in ranges], kept)
        self.assertEqual(self.query("SELECT value FROM fact WHERE key = 'multiprocessors'"), [(4.0,)])
        self.assertEqual(len(self.query("SELECT * FROM sample")), 2)
        shown = rooflm("report", self.record).stdout
        for title in ("== Kernels on the device", "== Time of the device", "== Activities"):
            self.assertIn(title, shown)
        kernels = rooflm("report", self.record, "--view", "kernels", "--format", "csv").stdout
        self.assertIn("gemm", kernels)

    def test_a_memory_snapshot_comes_back(self):
        record = made.write_gpu_record(self.folder / "a.rooflm", SCHEMA)
        self.export_and_import(record, "torch-memory")
        self.assertEqual(self.query("SELECT bytes, live_bytes FROM memory_event ORDER BY seq"),
                         [(1000, 1000), (4096, 5096), (600, 5696), (-600, 5096), (-4096, 1000)])

    def test_a_stored_memory_snapshot_of_pytorch(self):
        """What torch.cuda.memory._dump_snapshot of PyTorch 2.11 wrote on a GPU, against Python's own reading of it."""
        packed = (STORED / "memory.pickle.gz").read_bytes()
        self.take("memory.pickle.gz", packed)
        self.check_views()
        snapshot = pickle.loads(gzip.decompress(packed))
        changes = [entry for entry in snapshot["device_traces"][0] if entry["action"] in ("alloc", "free_completed")]
        taken = {entry["addr"] for entry in changes if entry["action"] == "alloc"}
        there = sum(block["size"] for segment in snapshot["segments"] for block in segment["blocks"]
                    if block["state"].startswith("active") and block["address"] not in taken)
        seen, live = set(), there
        for entry in changes:  # what is given back first was there before
            if entry["action"] == "alloc":
                seen.add(entry["addr"])
            elif entry["addr"] not in seen:
                live += entry["size"]
        peak = live
        for entry in changes:
            live += entry["size"] if entry["action"] == "alloc" else -entry["size"]
            peak = max(peak, live)
        self.assertEqual(self.query("SELECT MAX(live_bytes) FROM memory_event"), [(peak,)])
        reserved = sum(segment["total_size"] for segment in snapshot["segments"])
        self.assertEqual(self.query("SELECT value FROM fact WHERE key = 'reserved_bytes'"), [(reserved,)])

    def test_stored_traces_of_pytorch(self):
        """torch.profiler of PyTorch 2.11 on a GPU (its clock begins with a quarter of a year; little was kept of the steps), and
        of 1.13 on a processor, a step of two layers, against Python's own reading."""
        packed = (STORED / "trace.json.gz").read_bytes()
        self.take("trace.json.gz", packed)
        trace = json.loads(gzip.decompress(packed))
        slices = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["cat"] != "Trace"]
        first = min(event["ts"] for event in slices)
        expected = sorted((event["name"], round(1000 * (event["ts"] - first)), round(1000 * event["dur"])) for event in slices)
        rows = self.query("SELECT n.text, a.start_ns, a.end_ns - a.start_ns FROM activity a JOIN activity_name n USING (run, name)")
        for (name, start, span), (text, found_start, found_span) in zip(expected, sorted(rows), strict=True):
            self.assertEqual(name, text)
            self.assertLessEqual(max(abs(start - found_start), abs(span - found_span)), 1000, name)  # of a double's last digits
        self.assertEqual(self.query("SELECT value FROM environment WHERE key = 'device cuda:0'"), [("NVIDIA H100 80GB HBM3",)])
        packed = (STORED.parent / "torch_1.13" / "trace.json.gz").read_bytes()
        self.take("trace.json.gz", packed)
        self.check_views()
        slices = [event for event in json.loads(gzip.decompress(packed)) if event["ph"] == "X"]
        self.assertEqual(self.query("SELECT COUNT(*) FROM activity"), [(len(slices),)])
        took = sum(event["dur"] for event in slices if event["name"] == "aten::mm")
        self.assertEqual(self.query("SELECT SUM(end_ns - start_ns) / 1000 FROM activity JOIN activity_name n USING (run, name)"
                                    " WHERE n.text = 'aten::mm'"), [(took,)])
        self.assertEqual(self.query("SELECT COUNT(*) FROM sample WHERE phase = 'step'"), [(1,)])

    def test_steps_of_a_host_that_runs_ahead(self):
        events = []
        for step in range(3):
            events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step + 5}", "pid": 9, "tid": 9,
                           "ts": 100 * step, "dur": 100})
            events.append({**CALL, "ts": 100 * step + 10, "args": {"correlation": step + 1}})
            events.append({**KERNEL, "ts": 400 + 50 * step, "dur": 40, "args": {**KERNEL["args"], "correlation": step + 1}})
        self.take("a.json", {"traceEvents": events})
        self.assertEqual(self.query("SELECT step, start_ns, end_ns FROM activity JOIN activity_name USING (run, name)"
                                    " WHERE text = 'step' ORDER BY step"),
                         [(5, 0, 440_000), (6, 440_000, 490_000), (7, 490_000, 540_000)])
        self.assertEqual(self.query("SELECT step FROM activity JOIN activity_name USING (run, name)"
                                    " WHERE kind = 'kernel' ORDER BY start_ns"), [(5,), (6,), (7,)])
        self.check_views()
        # A copy for the next step runs beside the last kernels of this one, and is no begin of it.
        events.append({**KERNEL, "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "ts": 420, "dur": 5,
                       "args": {"device": 0, "stream": 8, "correlation": 2, "bytes": 10}})
        self.take("a.json", {"traceEvents": events})
        self.assertEqual(self.query("SELECT start_ns FROM activity JOIN activity_name USING (run, name)"
                                    " WHERE text = 'step' ORDER BY step"), [(0,), (440_000,), (490_000,)])
        self.check_views()

    def loop(self, ranges=True, kernels=40, each=8, first=1.7e15):
        """`each` kernels of 60 us, one in 100 us, in each millisecond, and ranges of a profiler's steps."""
        events = []
        for step in range(kernels // each if ranges else 0):
            events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 9, "tid": 9,
                           "ts": first + 1000 * step, "dur": 1000})
        for i in range(kernels):
            at = first + 1000 * (i // each) + 100 * (i % each) + 50
            events.append({**CALL, "ts": at, "dur": 5, "args": {"correlation": i + 1}})
            events.append({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": at + 30, "dur": 60,
                           "args": {"device": 0, "stream": 7, "correlation": i + 1}})
        return events

    def overview(self, *more):
        result = rooflm("report", self.record, "--view", "overview", "--format", "csv", *more)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_times_of_another_clock_are_left_out(self):
        events = self.loop()
        for event in events[6:9:2]:
            event["ts"] -= 1e11  # two kernels, a day and more before their calls
        self.take("a.json", {"traceEvents": events}, says=["2 events are on another clock", "steps: 5 of ranges ProfilerStep"])
        self.assertIn("takes 1.00 ms", self.overview())
        self.check_views()
        near = self.loop()
        near[6]["ts"] -= 5e6
        self.take("a.json", {"traceEvents": near}, says=["1 kernels and copies begin more than a second before their calls and were"])
        # More of them are at 0 than elsewhere, but none has its call there.
        zero = self.loop(ranges=False)
        for event in zero[1:50:2]:
            event["ts"] = 0
        zero += [{"ph": "X", "cat": "cpu_op", "name": f"op{i}", "pid": 9, "tid": 9, "ts": 0, "dur": 50} for i in range(30)]
        rows = self.take("a.json", {"traceEvents": zero}, says=["55 events are on another clock"])
        self.assertEqual(len(rows), 55)
        self.assertLess(max(row[3] for row in rows), 10_000_000)
        self.check_views()

    def test_an_impossible_end_is_left_out(self):
        events = self.loop()
        events[20]["dur"] = 5e6
        self.take("a.json", {"traceEvents": events}, says=["1 events end long after the next one on their stream began"])
        self.assertIn("takes 1.00 ms", self.overview())
        self.assertLess(self.query("SELECT MAX(seconds) FROM sample")[0][0], 0.0013)
        self.check_views()
        # A step that takes that long is one, and is named.
        slow = self.loop()
        slow[2]["dur"] += 5e6
        for event in slow:
            if event["ts"] >= 1.7e15 + 3000:
                event["ts"] += 5e6
        self.take("a.json", {"traceEvents": slow}, says=["1 step is longer than 10 times the median of 1.00 ms; the slowest is step 3"])
        self.assertIn("the slowest is step 3 with 5.00 s", self.overview())
        self.check_views()

    def test_kernels_that_run_into_the_next_step_keep_the_device_busy(self):
        events = []
        for step in range(4):
            begin = 1000 * step
            events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 9, "tid": 9,
                           "ts": begin, "dur": 1000})
            events.append({**CALL, "ts": begin + 5, "args": {"correlation": 99 + step}})
            events.append({**KERNEL, "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "ts": begin + 15, "dur": 20,
                           "args": {"device": 0, "stream": 16, "correlation": 99 + step, "bytes": 4096}})
            for i in range(10):
                number = 10 * step + i + 1
                events.append({**CALL, "ts": begin + 50 + 50 * i, "args": {"correlation": number}})
                events.append({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": begin + 600 + 99 * i,
                               "dur": 98, "args": {"device": 0, "stream": 7, "correlation": number}})
        self.take("a.json", {"traceEvents": events}, says=["steps: 4 of ranges ProfilerStep (10 kernels each), 100.0% of the device's time"])
        overview = self.overview()
        self.assertRegex(overview, r"takes 1.00 ms.* and kernels run for 98.\d% of it")
        self.check_views()
        # Others count as steps when asked for, in the report alone, and the record stays as it is.
        before = self.record.read_bytes()
        self.assertIn("10 kernels each", self.overview("--steps-by", "range:^ProfilerStep"))
        self.assertIn("steps,none", self.overview("--steps-by", "none"))
        self.assertEqual(self.overview("--steps-by", "auto"), overview)
        self.assertEqual(self.record.read_bytes(), before)
        result = rooflm("report", self.record, "--steps-by", "ranges")
        self.assertEqual((result.returncode, len(result.stderr.splitlines())), (2, 1), result.stderr)

    def test_older_records_without_a_device_keep_their_steps(self):
        """They do not say what their steps are, and had no other name for the ranges."""
        events = []
        for step in range(3):
            events += [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 9, "tid": 9, "ts": 1000 * step, "dur": 900},
                       {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#AdamW.step", "pid": 9, "tid": 9, "ts": 1000 * step + 700,
                        "dur": 100}]
        self.take("a.json", {"traceEvents": events}, says=["steps: 3 of ranges ProfilerStep"])
        with contextlib.closing(sqlite3.connect(self.record)) as record, record:
            record.execute("DELETE FROM fact WHERE key IN ('steps', 'kernels_of_no_step')")
            record.execute("UPDATE activity SET extra = NULL WHERE step IS NOT NULL")
        for by in ("auto", "range:step"):
            self.assertIn("median of 3", self.overview("--steps-by", by))
            self.assertRegex(self.overview("--steps-by", by), r"traced step,.?900 us")
        self.assertIn("steps,none", self.overview("--steps-by", "none"))

    def test_an_operator_that_repeats_is_no_step(self):
        events = []
        for step in range(6):
            begin = 10_000 * step
            events.append({"ph": "X", "cat": "user_annotation", "name": f"aten::to, op_id = {1000 + step}", "pid": 9, "tid": 9,
                           "ts": begin, "dur": 6000})
            for i in range(40):
                number = 40 * step + i + 1
                at = begin + (10 if i == 0 else 5900 + 100 * i)
                events.append({**CALL, "ts": at, "args": {"correlation": number}})
                events.append({"ph": "X", "cat": "kernel", "name": "gemm" if i == 39 else "k", "pid": 0, "tid": 7, "ts": at + 15,
                               "dur": 100 if i == 0 else 5900 if i == 39 else 95,
                               "args": {"device": 0, "stream": 7, "correlation": number}})
        self.take("a.json", {"traceEvents": events},
                  says=["steps: 6 of kernels that repeat (40 kernels each), 100.0% of the device's time; "
                        "kernels run for 87.0% of the time from the first to the last of them"])
        self.check_views()
        self.take("a.json", {"traceEvents": events}, more=["--steps-by", "none"], says=["steps: none"])
        self.check_views()
        old = [{"name": name, "ph": "X", "ts": 100 * i + at, "dur": 60, "pid": pid, "tid": tid, "args": {}} for i in range(20)
               for name, at, pid, tid in (("aten::mul", 0, "CPU functions", 1), ("mul_kernel", 20, "CUDA functions", 0))]
        self.take("a.json", old, says=["0 steps", "steps: none"])

    def test_chrome_traces_of_others(self):
        events = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/device:GPU:1"}},
                  {"ph": "M", "name": "thread_name", "pid": 1, "tid": 14, "args": {"name": "Stream #14(Compute)"}},
                  {"ph": "X", "name": "fusion.1", "pid": 1, "tid": 14, "ts": 1, "dur": 2},
                  {"ph": "B", "name": "outer", "pid": "host", "tid": "main", "ts": 0},
                  {"ph": "X", "name": "inner", "pid": "host", "tid": "main", "ts": 1, "dur": 1},
                  {"ph": "E", "pid": "host", "tid": "main", "ts": 4}]
        rows = self.take("a.json.gz", gzip.compress(json.dumps(events).encode()))
        self.assertEqual([row[:4] for row in rows], [("range", "outer", 0, 4000), ("kernel", "fusion.1", 1000, 2000),
                                                     ("range", "inner", 1000, 1000)])
        self.assertEqual(self.query("SELECT device FROM lane WHERE kind = 'device'"), [("cuda:1",)])
        # Times since 1970 in microseconds have more digits than a double.
        late = json.dumps([KERNEL]).replace("10.5", "1724900000000000.125").replace("2.25", "0.001")
        self.assertEqual(self.take("b.json", late)[0][2:4], (0, 1))
        self.assertEqual(self.query("SELECT value FROM meta WHERE key = 'epoch_utc_ns'"), [("1724900000000000125",)])

    def test_memory_without_addresses(self):
        def event(ts, size):
            return {"ph": "i", "name": "[memory]", "ts": ts, "args": {"Bytes": size, "Device Type": 1, "Device Id": 0}}

        self.take("a.json", {"traceEvents": [event(1, 100), event(2, -300), event(3, 50), event(4, 50)]},
                  says=["from before the trace began"])
        self.assertEqual(self.query("SELECT bytes, live_bytes FROM memory_event ORDER BY seq"),
                         [(200, 200), (100, 300), (-300, 0), (50, 50), (50, 100)])
        self.check_views()

    def test_lies_in_a_trace_are_counted_and_the_rest_is_kept(self):
        good = [CALL, KERNEL]
        lies = [({**KERNEL, "dur": -1}, "end before they start"), ({**KERNEL, "ts": 2**63}, "without a time"),
                ({**KERNEL, "ts": 1e300}, "without a time"), ({**KERNEL, "ts": 9e12}, "more than a day from the others"),
                ({**KERNEL, "args": {"correlation": 77, "stream": 7}}, "a correlation that no call has"),
                ({"ph": "X", "cat": "kernel", "name": "k"}, "without a time"), ({"ph": "E", "ts": 1}, "without a beginning"),
                ({"name": "nothing"}, 'without "ph"'), ({"ph": "i", "name": "[memory]", "ts": 1}, "without time or size"),
                ({**KERNEL, "cat": "gpu_memcpy", "args": {"bytes": 2**60}}, "sizes that no device has")]
        for lie, says in lies:
            rows = self.take("a.json", {"traceEvents": [lie, *good, lie]}, says=[says])
            self.assertLessEqual({"cudaLaunchKernel", KERNEL["name"]}, {row[1] for row in rows}, says)
        self.take("a.json", {"traceEvents": [*good, {"args": [[[{}]]], "ph": {}, "pid": [], "ts": "x"}, 5, None, [[]]]})
        cut = json.dumps({"traceEvents": good})
        self.assertEqual(len(self.take("a.json", cut[:-2], says=["the file is truncated"])), 2)
        self.assertEqual(self.query("SELECT status FROM run"), [("interrupted",)])
        self.assertEqual(len(self.take("a.json.gz", gzip.compress(cut.encode() * 1)[:-9], says=[])), 2)
        rows = self.take("a.json", cut.encode().replace(b"gemm", b"g\xff\xfem"), says=["not UTF-8"])
        self.assertEqual(len(rows), 2)

    def test_files_that_are_refused(self):
        bomb = gzip.compress(b"[" + b" " * 200_000_000)
        for name, content, says in (
                ("a.json", "[" * 100_000, "deeper than 64"), ("a.json", '{"traceEvents": [{"ph": nonsense}]}', "not valid JSON"),
                ("a.json", "{", "before its first event"), ("a.json", '{"a": 1}', "no list \"traceEvents\""),
                ("a.json", "[]", "no events"), ("a", "", "the file is empty"), ("a", "x", "not a file that import reads"),
                ("a.json", '{"schema": "1.0.2", "nodes": [{"id": 1}]}', "but schema, nodes"),
                ("a.json", json.dumps({"traceEvents": [KERNEL]}).encode("utf-16"), "UTF-16"),
                ("a.csv", "Time (%),Total Time (ns),Instances\n", "nsys stats"), ("a.nsys-rep", "NSYS", "nsys export --type sqlite"),
                ("a.xplane.pb", "\n\x08", "trace.json.gz"),
                ("a.json.gz", b"\x1f\x8b\x08" + b"\xff" * 50, "gzip"), ("a.json.gz", bomb, "unpacks to more")):
            self.take(name, content, code=3, says=[name, says])
        self.take("a.json", [KERNEL], code=2, says=["did you mean 'kineto'"], more=["--from", "kinteo"])
        self.take("a.json", [KERNEL], code=3, says=["no SQLite"], more=["--from", "nsys"])
        own = made.write_gpu_record(self.folder / "own.rooflm", SCHEMA)
        self.take("b.rooflm", own.read_bytes(), code=3, says=["is a run record already"])
        for arguments, code in ((["import", own], 2), (["import", own, "-o", own, "--overwrite"], 2),
                                (["import", self.folder / "none", "-o", self.record], 3)):
            self.assertEqual(rooflm(*arguments).returncode, code)

    def test_a_trace_beside_a_record_of_our_own(self):
        """Steps are compared where both sides have some; otherwise a line names the side without."""
        own = self.folder / "own.rooflm"
        profiled = rooflm("profile", "--device", "cpu", "--model", "tiny", "--layers", "1", "--vocab", "64", "--seq", "8", "--batch", "1",
                          "--warmup", "1", "--steps", "4", "-o", own)
        self.assertEqual(profiled.returncode, 0, profiled.stderr)
        steps = [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 900, "tid": 901, "ts": 100 * n, "dur": 90} for n in range(8)]
        work = [event for n in range(8) for event in ({**KERNEL, "ts": 100 * n + 10, "args": {**KERNEL["args"], "correlation": n}},
                                                      {**CALL, "ts": 100 * n + 5, "args": {"correlation": n}})]
        self.take("steps.json", steps + work)
        compared = rooflm("compare", self.record, own, "--format", "csv")
        self.assertEqual(compared.returncode, 0, compared.stderr)
        self.assertRegex(compared.stdout, r",step,0.0001,")
        self.take("work.json", work[:2])
        for pair in ((self.record, own), (own, self.record)):
            compared = rooflm("compare", *pair)
            self.assertEqual(compared.returncode, 3)
            self.assertEqual(compared.stderr, f"rooflm: {self.record} holds no timed steps: nothing can be compared\n")

    def test_pickles_are_data(self):
        class Evil:
            def __reduce__(self):
                return (print, ("executed",))

        for protocol in (2, 3, 4, 5):
            self.take("a.pickle", pickle.dumps({"segments": Evil()}, protocol), code=3,
                      says=["GLOBAL" if protocol > 3 else "GLOBAL, which imports", "nothing is executed"])
        entry = {"action": "alloc", "addr": 2**40, "size": 512, "stream": 0, "time_us": 5, "frames": []}
        trace = [entry, {**entry, "action": "free_requested", "time_us": 6}, {**entry, "action": "free_completed", "time_us": 7},
                 {**entry, "action": "free_completed", "addr": 7, "size": 64}, {**entry, "action": "segment_alloc"},
                 {"action": "oom", "size": 10**9, "device_free": 5, "stream": 0, "time_us": 9, "frames": []}]
        block = {"address": 2**41, "size": 100, "requested_size": 90, "state": "active_allocated"}
        snapshot = {"segments": [{"device": 1, "address": 2**41, "total_size": 128,
                                  "blocks": [block, {"size": 28, "state": "inactive"}]}],
                    "device_traces": [trace, []], "allocator_settings": {"x": (1, 2.5, None, True)}}
        for protocol in (2, 3, 4, 5):
            self.take("a.pickle", pickle.dumps(snapshot, protocol), says=["from before the trace began"])
            self.assertEqual(self.query("SELECT bytes, device, live_bytes FROM memory_event ORDER BY seq"),
                             [(100, "cuda:1", 100), (64, "cuda:0", 64), (512, "cuda:0", 576), (-64, "cuda:0", 512),
                              (-512, "cuda:0", 0)])
            self.assertEqual(self.query("SELECT status FROM run"), [("oom",)])
            self.check_views()
        data = pickle.dumps(snapshot, 4)
        for end in range(2, len(data) - 1, 7):
            self.take("a.pickle", data[:end], code=3, says=["damaged at byte"])
        loop = [entry]
        for _ in range(30):
            loop = [loop] * 2
        walk = {"device_traces": [[entry] * 1000] * 256, "segments": []}
        self.take("a.pickle", pickle.dumps(walk), code=3, says=["again and again"])
        self.take("a.pickle", pickle.dumps({"device_traces": loop, "segments": []}), code=3, says=["no events"])
        deep = b"\x80\x02" + b"](" * 200_000 + b"e" * 200_000 + b"."
        self.take("a.pickle", deep, code=3)
        self.take("a.pickle", pickle.dumps({"other": 1}), code=3, says=["no memory snapshot"])

    def test_databases_with_missing_and_lying_tables(self):
        def database(script):
            path = self.folder / "made.sqlite"
            path.unlink(missing_ok=True)
            with contextlib.closing(sqlite3.connect(path)) as made_up, made_up:
                made_up.executescript(script)
            return path.read_bytes()

        self.take("a.sqlite", database("CREATE TABLE other (x)"), code=3, says=["none of the tables of nsys"])
        kernel = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, shortName, gridX);"
        rows = self.take("a.sqlite", database(kernel + "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 9, 0, 7, 3, 11, 2),"
                                              " (9, 5, 0, 7, 4, 11, 2), (NULL, 5, 0, 7, 4, 11, 2), (1, 9223372036854775807,"
                                              " 0, 7, 1, 1, 1), ('x', 'y', 'z', 1, 1, 1, 1);"),
                         says=["StringIds is missing", "end before they start", "without start or end", "impossible times"])
        self.assertIn(("kernel", "kernel 11", 5, 4, None, None), rows)
        self.check_views()
        ranges = ("CREATE TABLE NVTX_EVENTS (start, end, eventType, globalTid, text, textId, domainId);"
                  "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);INSERT INTO StringIds VALUES (1, 'NCCL');"
                  "INSERT INTO NVTX_EVENTS VALUES (0, NULL, 75, 5, NULL, 1, 3), (1, 5, 59, 5, 'mine', NULL, 0),"
                  " (2, 3, 60, 5, 'sum', NULL, 3), (4, NULL, 34, 5, 'mark', NULL, 0), (4, NULL, 59, 5, 'open', NULL, 0);")
        rows = self.take("a.sqlite", database(ranges), says=["without an end"])
        self.assertEqual([row[1:4] for row in rows], [("mine", 1, 4), ("NCCL:sum", 2, 1), ("mark", 4, 0), ("open", 4, 1)])
        # Their style and domain come back, and what each synchronization waited for.
        waits = ("CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start, end, correlationId, globalPid, syncType);"
                 "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (1, 2, 0, 0, 0), (2, 3, 0, 0, 1), (3, 4, 0, 0, 2),"
                 " (4, 5, 0, 0, 3), (5, 6, 0, 0, 4);")
        self.take("a.sqlite", database(ranges + waits))
        again = self.folder / "again.sqlite"
        self.assertEqual(rooflm("export", self.record, "--format", "nsys-sqlite", "-o", again).returncode, 0)
        with contextlib.closing(sqlite3.connect(again)) as back:
            found = back.execute("SELECT n.eventType, s.value, d.value, n.end FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId"
                                 " LEFT JOIN NVTX_EVENTS m ON m.eventType = 75 AND m.domainId = n.domainId"
                                 " LEFT JOIN StringIds d ON d.id = m.textId WHERE n.eventType <> 75 ORDER BY s.value").fetchall()
            types = back.execute("SELECT syncType FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION ORDER BY start").fetchall()
        self.assertEqual(found, [(34, "mark", None, None), (59, "mine", None, 5), (59, "open", None, 6), (60, "sum", "NCCL", 3)])
        self.assertEqual(types, [(0,), (1,), (2,), (3,), (4,)])
        sums = rooflm("export", self.record, "--format", "nvtx_sum", "-o", "-").stdout.splitlines()[1:]
        self.assertEqual(sorted(row.split(",", 8)[8] for row in sums), ["PushPop,:mine", "PushPop,:open", "StartEnd,NCCL:sum"])
        whole = database(kernel + "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 9, 0, 7, 3, 11, 2);")
        self.take("a.sqlite", whole[:5000], code=3)
        self.take("a.sqlite", database("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS end"), code=3)


if __name__ == "__main__":
    BINARY, SCHEMA = sys.argv[1], pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
