#!/usr/bin/env python3
"""Every export, read back, gives the figures of its record: steps, their times, kernels, the device's time, and the peak of memory.
And readers of others' programs find the same in it.

Usage: test_round_trips.py BINARY SCHEMA [unittest options]"""

import contextlib
import gzip
import json
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import unittest

import foreign_records as made
import trace_readers as readers

BINARY = ""
SCHEMA = ""
TESTS = pathlib.Path(__file__).resolve().parents[1]
COLLECTIVE = '{"communicator":"36a3","ranks":2,"rank":1,"count":%d,"dtype":"%s","algorithm":"RING","protocol":"SIMPLE","sequence":%d}'


def rooflm(*arguments):
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def busy_ns(spans):
    """How long at least one of them goes on."""
    busy, until = 0, 0
    for start, end in sorted(spans):
        busy += max(0, end - max(start, until))
        until = max(until, end)
    return busy


def trace_of_a_program_ahead(evaluates=False):
    """A host that submits a step in 100 us, of which the device does 20 kernels of 25 us: it is behind from the first step on. A copy
    and a graph of three kernels with one call are in each step; kernels of another thread, and a start without a step, too. Where it
    evaluates, four kernels are asked for between two steps."""
    def slice_of(category, name, tid, ts, dur, pid=900, **args):
        return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}

    events, number, device_us = [], 0, 0.0

    def launch(call, at, kernels, tid=901, category="kernel", **args):
        nonlocal number, device_us
        number += 1
        events.append(slice_of("cuda_runtime", call, tid, at, 2, correlation=number))
        for name, us in kernels:
            device_us = max(device_us, at + 3) + us
            events.append(slice_of(category, name, 7, device_us - us, us, pid=0, device=0, stream=7, correlation=number, **args))

    for kernel in range(5):
        launch("cudaLaunchKernel", 10 * kernel, [("start_up", 3)])
    for step in range(6):
        begin = 100 + 100 * step
        if evaluates and step == 3:
            for kernel in range(4):
                launch("cudaLaunchKernel", begin - 1.5 + kernel / 4, [("evaluation", 30)])
        events.append(slice_of("user_annotation", f"ProfilerStep#{step}", 901, begin, 98))
        events.append(slice_of("cpu_op", "aten::mm", 901, begin + 2, 60))
        for kernel in range(17):
            launch("cudaLaunchKernel", begin + 4 + 3 * kernel, [(f"gemm_{kernel % 3}", 25)], grid=[8, 1, 1], block=[128, 1, 1])
        launch("cudaGraphLaunch", begin + 70, [("a", 25), ("b", 25), ("c", 25)], tid=902)
        launch("cudaMemcpyAsync", begin + 80, [("Memcpy HtoD (Pageable -> Device)", 4)], category="gpu_memcpy", bytes=4096)
    memory = [{"ph": "i", "name": "[memory]", "ts": ts, "pid": 900, "tid": 901, "args": {
        "Bytes": size, "Addr": 4096 * address, "Device Type": 1, "Device Id": 0}}
        for ts, size, address in ((90, 1000, 1), (110, 5000, 2), (190, -5000, 2), (210, 7000, 3), (290, -7000, 3))]
    return {"traceEvents": events + memory}


class RoundTrips(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def done(self, *arguments):
        result = rooflm(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def imported(self, name, content):
        path, record = self.folder / name, self.folder / f"{name}.rooflm"
        path.write_bytes(content)
        self.done("import", path, "-o", record)
        return record

    def ahead(self, evaluates=False):
        return self.imported("ahead.json", json.dumps(trace_of_a_program_ahead(evaluates)).encode())

    def records(self):
        """All records that the tests of exports and imports have."""
        yield made.write_gpu_record(self.folder / "gpu.rooflm", SCHEMA)
        yield made.write_gpu_record(self.folder / "graph.rooflm", SCHEMA, graph=True)
        yield self.ahead()
        yield self.collectives()
        for version in ("1.13", "2.11"):
            trace = (TESTS / "goldens" / f"torch_{version}" / "trace.json.gz").read_bytes()
            yield self.imported(f"torch_{version}.json", gzip.decompress(trace))
        yield TESTS / "report" / "data" / "v2_recorded.rooflm"

    def collectives(self):
        """Two kernels that NCCL told of, in a record whose steps are its own."""
        path = made.write_gpu_record(self.folder / "nccl.rooflm", SCHEMA)
        with contextlib.closing(sqlite3.connect(path)) as record, record:
            record.execute("INSERT INTO lane VALUES (1, 9, 'link', 'cuda:0', NULL, NULL, 'NCCL 36a3')")
            record.execute("INSERT INTO activity_name VALUES (1, 90, 'communication', 'AllGather'), (1, 91, 'kernel', 'ncclDevKernel_AllGather'),"
                           " (1, 92, 'communication', 'ReduceScatter')")
            for step, name, count, dtype in ((3, 90, 1 << 20, "Int8"), (4, 92, 1 << 18, "Bfloat16")):
                at, extra = 1_000_000 * step + 80_000, 90 + step
                record.execute("INSERT INTO activity_extra VALUES (1, ?, ?)", (extra, COLLECTIVE % (count, dtype, step)))
                record.execute("INSERT INTO activity VALUES (1, ?, 91, 0, ?, ?, ?, NULL, ?, NULL, NULL)",
                               (9000 + step, at, at + 5000, 9000 + step, step))
                record.execute("INSERT INTO activity VALUES (1, ?, ?, 9, ?, ?, ?, ?, ?, NULL, ?)",
                               (9100 + step, name, at, at + 5000, 9000 + step, count, step, extra))
                call = record.execute("SELECT name FROM activity_name WHERE text LIKE 'cudaLaunch%'").fetchone()[0]
                record.execute("INSERT INTO activity VALUES (1, ?, ?, 2, ?, ?, ?, NULL, NULL, NULL, NULL)",
                               (9200 + step, call, at - 2000, at - 1000, 9000 + step))
        return path

    def figures(self, record, run=1):
        """Steps that are no warm-up, with their times; of each the kernels, their time, and how long the device was busy."""
        with contextlib.closing(sqlite3.connect(f"file:{record}?mode=ro&immutable=1", uri=True)) as database:
            steps = dict(database.execute("SELECT step, CAST(ROUND(1e9 * seconds) AS INTEGER) FROM sample WHERE run = ? AND"
                                          " phase = 'step' AND kind IN ('traced', 'observed')", (run,)))
            work = database.execute(
                "SELECT a.step, n.kind, a.start_ns, a.end_ns FROM activity AS a JOIN activity_name AS n USING (run, name) WHERE a.run = ?"
                " AND n.kind IN ('kernel', 'copy', 'memset') ORDER BY a.start_ns", (run,)).fetchall()
            memory = database.execute(  # our own steps name no device
                "SELECT IIF(device = '', 'cuda:0', device) AS d, MAX(live_bytes) FROM memory_event WHERE run = ? AND d LIKE 'cuda%'"
                " GROUP BY d", (run,)).fetchall()
        if any(step is not None for step, *_ in work):
            work = [one for one in work if one[0] is not None]
        found = {}
        for step in sorted({one[0] for one in work}, key=lambda step: (step is not None, step)):
            kernels = [one for one in work if one[0] == step and one[1] == "kernel"]
            found[step] = {"kernels": len(kernels), "kernel_ns": sum(end - start for *_, start, end in kernels),
                           "work": sum(one[0] == step for one in work),
                           "busy_ns": busy_ns((start, end) for one, _, start, end in work if one == step)}
        return steps, found, memory

    def back(self, record, form, suffix, *more):
        path, again = self.folder / ("back" + suffix), self.folder / "back.rooflm"
        self.done("export", record, "--format", form, "-o", path, "--overwrite", *more)
        self.done("import", path, "-o", again, "--overwrite")
        self.done("verify", again)
        return path, again

    @staticmethod
    def says_what_steps_are(record):
        """Older ones took other moments for the beginning of a step."""
        with contextlib.closing(sqlite3.connect(record)) as database:
            return database.execute("SELECT count(*) FROM fact WHERE key = 'steps'").fetchone()[0] > 0

    def check_steps(self, before, after, what, is_found=True):
        """Numbers of steps count anew in nsys. The first step begins with its host where what ran before it is not in the file."""
        self.assertEqual(len(after), len(before), what)
        if not is_found:
            return
        for (number, was), now in zip(sorted(before.items()), [time for _, time in sorted(after.items())]):
            if number != min(before):
                self.assertEqual(now, was, f"{what}: step {number}")
            else:
                self.assertGreaterEqual(now, was, f"{what}: step {number}")

    def test_every_record(self):
        for record in self.records():
            steps, work, memory = self.figures(record)
            for form, suffix in (("kineto", ".json"), ("nsys-sqlite", ".sqlite")):
                what = f"{record.name} as {form}"
                with self.subTest(what):
                    if form == "nsys-sqlite" and not work:
                        continue  # a processor alone has no table there
                    path, again = self.back(record, form, suffix)
                    again_steps, again_work, again_memory = self.figures(again)
                    self.check_steps(steps, again_steps, what, self.says_what_steps_are(record))
                    self.assertEqual(list(again_work.values()), list(work.values()), what)
                    if form == "kineto":
                        self.assertEqual(list(again_steps), list(steps), what)
                        self.assertEqual(again_memory, memory, what)
                        self.check_readers(path, work)
                    else:
                        kernels, kernel_ns, _ = readers.read_as_nsys(path)
                        self.assertEqual((kernels, kernel_ns or 0), self.sums(work), what)
            if memory:
                with self.subTest(f"{record.name} as torch-memory"):
                    self.assertEqual(self.figures(self.back(record, "torch-memory", ".pickle")[1])[2], memory)

    @staticmethod
    def sums(work):
        return sum(one["kernels"] for one in work.values()), sum(one["kernel_ns"] for one in work.values())

    def check_readers(self, path, work):
        found = readers.read_as_hta(self, path)
        calls = any(one["kernels"] for one in work.values())
        self.assertLessEqual(found["kernels"], self.sums(work)[0])
        if calls and None not in work and found["kernels"] == self.sums(work)[0]:
            self.assertEqual(found["kernel_ns"], self.sums(work)[1])
        readers.read_as_tensorboard(self, path)
        readers.read_as_tracelens(self, path)

    def test_a_host_that_runs_ahead(self):
        """Each kernel is launched within its step, and warm-up and start-up are not in the file unless they are asked for."""
        record, path = self.ahead(), self.folder / "ahead_again.json"
        steps, work, _ = self.figures(record)
        self.done("export", record, "--format", "kineto", "-o", path)
        found = readers.read_as_hta(self, path)
        self.assertEqual(found["kernels_of_step"], {step: 20 for step in steps})
        self.assertEqual((found["kernels"], found["kernel_ns"]), self.sums(work))
        self.assertEqual(found["kernels"], 20 * len(steps), "without those of the start")
        times = readers.read_as_tensorboard(self, path)
        self.assertEqual(sum(times.values()), sum(one["kernel_ns"] for one in work.values()) + 4000 * len(steps))
        self.done("export", record, "--format", "kineto", "-o", path, "--overwrite", "--whole")
        self.assertEqual(readers.read_as_hta(self, path)["kernels"], 5 + 20 * 6)
        result = rooflm("export", record, "--format", "kineto", "-o", path, "--overwrite", "--whole", "--step", 1)
        self.assertEqual(result.returncode, 2)
        self.assertIn("--step, --whole", result.stderr)

    def test_work_between_steps_is_there(self):
        """Without it the device would seem idle, and the step after it longer."""
        record = self.ahead(evaluates=True)
        steps, work, _ = self.figures(record)
        for form, suffix in (("kineto", ".json"), ("nsys-sqlite", ".sqlite")):
            with self.subTest(form):
                path, again = self.back(record, form, suffix)
                if form == "kineto":
                    self.assertEqual(readers.read_as_hta(self, path)["kernels"], 20 * 6 + 4)
                again_steps, again_work, _ = self.figures(again)
                self.check_steps(steps, again_steps, "evaluates")
                self.assertEqual(list(again_work.values()), list(work.values()))

    def test_steps_keep_their_names_in_databases(self):
        """Also where the range of the program lasts as long as the step of the device."""
        events = []
        for step in range(4):
            events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 9, "tid": 9, "ts": 100 * step, "dur": 100})
            for category, tid, ts, dur in (("cuda_runtime", 9, 100 * step + 1, 2), ("kernel", 7, 100 * step + 10, 90)):
                events.append({"ph": "X", "cat": category, "name": "cudaLaunchKernel" if tid == 9 else "gemm", "pid": tid if tid == 9 else 0,
                               "tid": tid, "ts": ts, "dur": dur, "args": {"correlation": step + 1, "device": 0, "stream": 7}})
        record = self.imported("named.json", json.dumps({"traceEvents": events}).encode())
        steps, work, _ = self.figures(record)
        self.assertEqual(set(steps.values()), {100_000})
        path, again = self.back(record, "nsys-sqlite", ".sqlite")
        with contextlib.closing(sqlite3.connect(path)) as database:
            names = database.execute("SELECT s.value FROM NVTX_EVENTS AS e JOIN StringIds AS s ON s.id = e.textId ORDER BY e.start").fetchall()
        self.assertEqual(names, [(f"ProfilerStep#{step}",) for step in range(4)])
        self.assertEqual(self.figures(again)[:2], (steps, work))

    def test_memory_of_one_step(self):
        record, path = self.ahead(), self.folder / "one.json"
        self.done("export", record, "--format", "kineto", "-o", path, "--step", 1)
        events = json.loads(path.read_text())["traceEvents"]
        memory = [event["args"]["Bytes"] for event in events if event["name"] == "[memory]"]
        self.assertNotIn(1000, memory, "was taken before that step")
        self.assertIn(7000, memory)

    def test_collectives_as_torch_describes_them(self):
        path = self.folder / "nccl.json"
        self.done("export", self.collectives(), "--format", "kineto", "-o", path)
        self.assertEqual(readers.read_as_tracelens(self, path), [("_allgather_base", 1, 2, 2), ("_reduce_scatter_base", 1, 0.5, 2)])
        self.assertEqual(readers.read_as_hta(self, path)["nccl_ns"], 10_000)
        events = json.loads(path.read_text())["traceEvents"]
        args = next(event["args"] for event in events if event["name"].startswith("nccl") and "Rank" in event["args"])
        self.assertEqual((args["Process Group Name"], args["Process Group Ranks"], args["Rank"], args["Seq"]), ("36a3", "[0, 1]", 1, 3))

    def test_devices_of_a_database(self):
        path = self.folder / "a.sqlite"
        self.done("export", made.write_gpu_record(self.folder / "gpu.rooflm", SCHEMA), "--format", "nsys-sqlite", "-o", path)
        self.assertEqual(readers.read_as_nsys(path)[2], "NVIDIA H100")


if __name__ == "__main__":
    BINARY, SCHEMA = sys.argv[1], pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
