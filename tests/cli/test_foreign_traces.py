#!/usr/bin/env python3
"""Traces as PyTorch of any version, JAX, TensorFlow, scripts that merge ranks and nsys have written them: everything is read,
or what is not is said.

Usage: test_foreign_traces.py BINARY [unittest options]"""

import contextlib
import json
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import unittest

BINARY = ""


def rooflm(*arguments):
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def slice_of(cat, name, pid, tid, ts, dur, **args):
    event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
    if cat is None:
        del event["cat"]
    return event


def call(pid, ts, correlation, name="cudaLaunchKernel", cat="cuda_runtime"):
    return slice_of(cat, name, pid, pid, ts, 1, correlation=correlation)


def kernel(device, ts, correlation, name="k", cat="kernel", pid=None, tid=7, dur=5):
    return slice_of(cat, name, device if pid is None else pid, tid, ts, dur, device=device, stream=7, correlation=correlation)


class Traces(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.record = self.folder / "out.rooflm"

    def take(self, content, code=0, says=(), silent=()):
        """Imports the file and returns what standard error says."""
        path = self.folder / "trace.json"
        if not isinstance(content, (str, bytes)):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.record.unlink(missing_ok=True)
        result = rooflm("import", path, "-o", self.record)
        self.assertEqual(result.returncode, code, result.stderr)
        for text in says:
            self.assertIn(text, result.stderr)
        for text in silent:
            self.assertNotIn(text, result.stderr)
        if code == 0:
            for arguments in (("report", self.record), ("verify", self.record)):
                checked = rooflm(*arguments)
                self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        return result.stderr

    def query(self, sql):
        with contextlib.closing(sqlite3.connect(self.record)) as record:
            return record.execute(sql).fetchall()

    def kinds(self):
        return dict(self.query("SELECT n.kind, COUNT(*) FROM activity a JOIN activity_name n USING (run, name) GROUP BY n.kind"))

    def report(self, view, *more):
        result = rooflm("report", self.record, "--view", view, *more)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_categories_of_pytorch_1_8_to_1_11(self):
        events = [slice_of("Operator", "ProfilerStep#0", 1, 1, 0, 1000)]
        for i in range(20):
            events += [slice_of("Operator", "aten::mul", 1, 1, 40 * i, 10), call(1, 40 * i + 5, i + 1, cat="Runtime"),
                       {**kernel(0, 40 * i + 8, i + 1, cat="Kernel"), "tid": "stream 7"}]
        events += [{**kernel(0, 900, 0, "Memcpy HtoD (Pinned -> Device)", cat="Memcpy"), "tid": "stream 7"},
                   {**kernel(0, 910, 0, "Memset (Device)", cat="Memset"), "tid": "stream 7"},
                   slice_of("User_Annotation", "forward", 1, 1, 0, 500)]
        del events[-3]["args"]["stream"]  # the thread names it
        self.take({"traceEvents": events})
        self.assertEqual(self.kinds(), {"api": 20, "copy": 1, "kernel": 20, "memset": 1, "op": 20, "range": 2})
        self.assertEqual(self.query("SELECT kind, device, stream FROM lane WHERE kind = 'device'"), [("device", "cuda:0", 7)])
        self.assertEqual(self.query("SELECT COUNT(*) FROM activity WHERE step = 0 AND correlation IS NOT NULL"), [(20,)])

    def test_what_is_left_out_is_counted(self):
        events = [kernel(0, 10, 1), call(5, 5, 1), slice_of("hpu_op", "gemm", 3, 4, 20, 5, device=1, stream=2),
                  slice_of("fancy", "thing", 5, 5, 30, 5), {"ph": "C", "name": "power", "pid": 5, "ts": 1, "args": {"W": 5}},
                  {"ph": "b", "name": "a", "id": 1, "ts": 1}, {"ph": "e", "name": "a", "id": 1, "ts": 2},
                  {"ph": "i", "name": "mark", "ts": 1}, {"ph": "P", "name": "sample", "ts": 1},
                  {"ph": "i", "name": "Record Window End", "ts": 1}, {"ph": "s", "id": 1, "ts": 1, "cat": "ac2g"}]
        said = self.take(events, says=["1 events have an unknown category (hpu_op) and were taken as kernels",
                                       "1 events have an unknown category (fancy) and were taken as ranges of the host",
                                       '1 values of counters (phase "C")', "2 asynchronous events", "1 marks", "1 events of other phases"])
        self.assertNotIn("ac2g", said)
        self.assertEqual(self.kinds(), {"api": 1, "kernel": 2, "range": 1})
        self.take([call(5, 5, 1), call(5, 7, 2)], says=["2 calls launched kernels, but the trace holds no work of a device"])
        self.take([call(5, 5, 1), kernel(0, 6, 1), call(5, 7, 2)], says=["1 of 2 calls that launched kernels have none in the trace"])
        self.take([call(5, 1, 9, "cudaStreamBeginCapture"), call(5, 5, 1), kernel(0, 6, 1), call(5, 7, 2)], silent=["have none"])
        self.take([call(5, 5, 1, "hipLaunchKernel"), call(5, 6, 2, "hipMemcpyAsync")], says=["1 calls launched kernels, but"])

    def test_the_profiler_before_kineto(self):
        events = [slice_of(None, "aten::mul", "CPU functions", 1, 100 * i, 60) for i in range(20)]
        events += [slice_of(None, "mul_kernel", "CUDA functions", 1, 100 * i + 20, 30) for i in range(20)]
        events += [slice_of(None, "my part", "CPU functions", 1, 0, 90),
                   {"name": "aten::mul", "ph": "s", "ts": 0, "tid": 1, "pid": "CPU functions", "id": 0, "cat": "cpu_to_cuda"}]
        said = self.take(events)
        self.assertIn("0 steps", said)
        self.assertEqual(self.kinds(), {"kernel": 20, "op": 20, "range": 1})
        self.assertEqual(self.query("SELECT DISTINCT l.device FROM activity JOIN activity_name n USING (run, name) JOIN lane l"
                                    " USING (run, lane) WHERE n.kind = 'kernel'"), [("cuda:1",)])

    def test_traces_of_xla_and_tensorflow(self):
        def name(what, pid, text, tid=0):
            return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": text}}

        events = [name("process_name", 1, "/device:GPU:0"), name("thread_name", 1, "Stream #14(Compute,MemcpyD2H)", 14),
                  name("thread_name", 1, "XLA Modules", 2), name("process_name", 700, "/host:CPU"), name("thread_name", 700, "python3", 9),
                  slice_of(None, "fusion_1", 1, 14, 10, 5, correlation_id="3"), slice_of(None, "MemcpyD2H", 1, 14, 20, 5),
                  slice_of(None, "jit_step", 1, 2, 10, 15), slice_of(None, "cuLaunchKernel", 700, 9, 5, 1, correlation_id="3")]
        self.take({"traceEvents": events})
        self.assertEqual(self.query("SELECT n.kind, n.text, l.kind, a.correlation FROM activity a JOIN activity_name n USING (run, name)"
                                    " JOIN lane l USING (run, lane) ORDER BY n.text"),
                         [("copy", "copy device to host", "device", None), ("api", "cuLaunchKernel", "host", 3),
                          ("kernel", "fusion_1", "device", 3), ("range", "jit_step", "device", None)])
        events = [name("process_name", 1, "/device:GPU:1/stream:13 Compute"), name("process_name", 2, "/device:GPU:1/stream:all Compute"),
                  name("process_name", 3, "/host:CPU"), slice_of("Op", "MatMul", 1, 0, 10, 5), slice_of("Op", "MatMul", 2, 0, 10, 5)]
        for event in events[3:]:
            del event["cat"]
        self.take(events)
        self.assertEqual(self.query("SELECT n.kind, l.device, l.stream FROM activity JOIN activity_name n USING (run, name) JOIN lane l"
                                    " USING (run, lane) ORDER BY 1"), [("kernel", "cuda:1", 13), ("range", "cuda:1", None)])

    def test_what_perfetto_saved(self):
        events = [call(5, 5, 1), {**kernel(0, 10, 1), "pid": "GPU 1", "tid": "stream 9"}]
        del events[1]["args"]["device"], events[1]["args"]["stream"]
        for event in events:
            event["args"] = {"args": event["args"]}
        self.take({"traceEvents": events})
        self.assertEqual(self.query("SELECT correlation FROM activity"), [(1,), (1,)])
        self.assertEqual(self.query("SELECT device, stream FROM lane WHERE kind = 'device'"), [("cuda:1", 9)])

    def ranks_of_kernels(self):
        """The range of the host around the call of each kernel."""
        return self.query("SELECT k.start_ns, l.device, r.text FROM activity k JOIN activity_name n ON n.name = k.name AND n.kind = 'kernel'"
                          " JOIN lane l ON l.lane = k.lane JOIN activity c ON c.correlation = k.correlation AND c.id <> k.id"
                          " JOIN activity s ON s.lane = c.lane AND s.start_ns <= c.start_ns AND s.end_ns >= c.end_ns"
                          " JOIN activity_name r ON r.name = s.name AND r.kind = 'range' ORDER BY k.start_ns")

    @staticmethod
    def rank(host, device, start, pid=None):
        return [slice_of("user_annotation", f"forward of {host}", host, host, start, 10), call(host, start + 1, 1), call(host, start + 3, 2),
                kernel(device, start + 2, 1, pid=pid), kernel(device, start + 20, 2, pid=pid)]

    def test_ranks_merged_into_one_file(self):
        right = [(102_000, "cuda:0", "forward of 10"), (104_000, "cuda:1", "forward of 20"), (120_000, "cuda:0", "forward of 10"),
                 (122_000, "cuda:1", "forward of 20")]

        def shown():
            first = self.query("SELECT MIN(start_ns) FROM activity")[0][0]
            return [(start - first + 100_000, device, name) for start, device, name in self.ranks_of_kernels()]

        # One file after the other; both ranks saw their device as the first.
        said = self.take(self.rank(10, 0, 100) + self.rank(20, 0, 102), says=["traces of 2 ranks", "by their order in the file"])
        self.assertIn("cuda:0 of process 20 is cuda:1 here", said)
        self.assertEqual(shown(), right)
        # By time: only one host can have started the work of each device.
        mixed = sorted(self.rank(10, 0, 100) + self.rank(20, 1, 102), key=lambda event: event["ts"])
        self.take(mixed, says=["by the calls that can have started them"])
        self.assertEqual(shown(), right)
        # By the names of processes, as SGLang merges.
        for event in (named := [dict(event) for event in mixed]):
            rank = 0 if event["pid"] in (10, 0) else 1
            event["pid"] = f"[TP0{rank}] {event['pid']}"
        self.take(named, says=["by the names of their processes"])
        self.assertEqual(shown(), right)
        # Both can have started both: refused.
        late = sorted(self.rank(10, 0, 100)[:3] + self.rank(20, 1, 100)[:3] + [kernel(0, 150, 1), kernel(1, 150, 1)], key=lambda e: e["ts"])
        said = self.take(late, code=3, says=["import each rank's file alone"])
        self.assertEqual(len(said.splitlines()), 1)
        # Under one number of a process.
        twice = [call(10, 10 * i, i + 1) for i in range(10)] * 2
        self.take(twice, code=3, says=["each correlation several times"])

    def test_memory_from_before_the_trace(self):
        def event(ts, size, total, device=1, address=4096):
            return {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": {
                "Bytes": size, "Addr": address, "Total Allocated": total, "Total Reserved": 9000000, "Device Type": device, "Device Id": 0}}

        self.take([event(1, 4096, 5004096), event(5, -4096, 5000000)])
        self.assertEqual(self.query("SELECT MAX(live_bytes) FROM memory_event"), [(5004096,)])
        self.assertIn("5.00 MB", self.report("memory"))
        # What is given back later was part of it.
        self.take([event(1, 100, 1100), event(2, -400, 700, address=8192), event(3, -100, 600)])
        self.assertEqual(self.query("SELECT MAX(live_bytes), MIN(bytes) FROM memory_event"), [(1100, -400)])
        self.assertEqual(self.query("SELECT live_bytes FROM memory_event ORDER BY seq DESC LIMIT 1"), [(600,)])
        self.assertEqual(self.query("SELECT key, value, text FROM fact WHERE key LIKE 'torch%'"), [("torch_reserved_bytes", 9e6, "cuda:0")])
        self.assertIn("9.00 MB", self.report("allocator"))

    def test_devices_are_called_by_their_type(self):
        def event(device):
            return {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1, "args": {
                "Bytes": 100, "Addr": 4096, "Total Allocated": 1100, "Device Type": device, "Device Id": 0}}

        kernels = [call(5, 5, 1), kernel(0, 10, 1)]
        for number, memory, device in ((0, "cpu", "cuda:0"), (1, "cuda:0", "cuda:0"), (6, "hip:0", "hip:0"), (12, "xpu:0", "xpu:0")):
            self.take(kernels + [event(number)])
            self.assertEqual(self.query("SELECT DISTINCT device FROM memory_event"), [(memory,)])
            self.assertEqual(self.query("SELECT device FROM lane WHERE kind = 'device'"), [(device,)])
            path = self.folder / "again.json"
            self.assertEqual(rooflm("export", self.record, "--format", "kineto", "-o", path, "--overwrite", "--whole").returncode, 0)
            self.take(path.read_bytes())
            self.assertEqual(self.query("SELECT DISTINCT device FROM memory_event"), [(memory,)])
            self.assertEqual(self.query("SELECT device FROM lane WHERE kind = 'device'"), [(device,)])
        self.take([call(5, 5, 1, "urEnqueueKernelLaunch", "xpu_runtime"), kernel(0, 10, 1)])
        self.assertEqual(self.query("SELECT device FROM lane WHERE kind = 'device'"), [("xpu:0",)])

    def test_an_accelerator_with_a_category_of_its_own(self):
        """MTIA: its process has calls of its own and is no other rank."""
        name = {"ph": "M", "name": "process_name", "pid": 17, "tid": 0, "args": {"name": "MTIA 17"}}
        work = [slice_of("mtia_ccp_events", text, 17, 3774, ts, 5, stream=108, correlation=number)
                for text, ts, number in (("add-dtype_Float", 10, 1), ("dma_request", 20, 2), ("event_wait", 30, 3))]
        said = self.take([name, call(5, 5, 1, "runFunction", "mtia_runtime"), call(5, 15, 2, "enqueueCommand", "mtia_runtime"),
                          call(17, 8, 3, "predictor_executor::run", "mtia_runtime"), *work])
        self.assertNotIn("ranks", said)
        self.assertNotIn("unknown category", said)
        self.assertEqual(self.kinds(), {"api": 3, "kernel": 1, "copy": 1, "range": 1})
        self.assertEqual(self.query("SELECT DISTINCT device FROM lane WHERE kind = 'device'"), [("mtia:17",)])

    def test_arrows_of_traces_before_kineto(self):
        """An operator started the kernels to which its arrows go, however late they run."""
        def old(name, process, thread, ts, dur):
            return slice_of(None, name, process, thread, ts, dur)

        def arrow(number, thread, ts, device, kernel_ts):
            flow = {"id": number, "cat": "cpu_to_cuda", "name": "x"}
            return [{**flow, "ph": "s", "pid": "CPU functions", "tid": thread, "ts": ts},
                    {**flow, "ph": "f", "pid": "CUDA functions", "tid": device, "ts": kernel_ts}]

        ops = [old("aten::linear", "CPU functions", 1, 0, 50), old("aten::mm", "CPU functions", 1, 10, 30), old("aten::add", "CPU functions", 1, 60, 10)]
        kernels = [old("gemm", "CUDA functions", 0, 100, 70), old("splitk", "CUDA functions", 0, 170, 20), old("add", "CUDA functions", 0, 200, 9)]
        self.take(ops + kernels + arrow(4, 1, 10, 0, 100) + arrow(5, 1, 10, 0, 170) + arrow(6, 1, 60, 0, 200))
        self.assertEqual(self.query("SELECT n.text, a.correlation FROM activity a JOIN activity_name n USING (run, name) WHERE n.kind = 'kernel'"
                                    " ORDER BY start_ns"), [("gemm", 4), ("splitk", 4), ("add", 6)])
        rows = {line.rsplit(",", 1)[1]: line.split(",") for line in self.report("operators", "--format", "csv").splitlines() if "aten::" in line}
        for name, right in (("aten::linear", [0, 90]), ("aten::mm", [90, 90]), ("aten::add", [9, 9])):
            self.assertEqual([round(1e6 * float(x)) for x in rows[name][5:7]], right)

    def test_a_trace_of_a_processor_alone(self):
        def op(name, ts, dur, shapes, stack=""):
            args = {"Input Dims": shapes, "Input type": ["float"] * len(shapes)}
            return slice_of("cpu_op", name, 1, 1, ts, dur, **args, **({"Call stack": stack} if stack else {}))

        events = [slice_of("user_annotation", "ProfilerStep#1", 1, 1, 0, 1000),
                  op("aten::linear", 10, 500, [[8, 16], [16, 32]], "torch/nn/linear.py(5): forward;train.py(7): step;train.py(90): <module>"),
                  op("aten::addmm", 20, 400, [[8, 16], [16, 32]]), op("aten::addmm", 100, 50, [[8, 16]]),
                  op("aten::linear", 600, 300, [[4, 16], []])]
        self.take({"traceEvents": events})
        csv = self.report("operators", "--format", "csv")
        self.assertRegex(csv, r"(?m)^0\.5,0\.0004,0\.0004,2,0\.0002,aten::addmm$")  # one within the other
        self.assertRegex(csv, r"(?m)^0\.5,0\.0004,0\.0008,2,0\.0004,aten::linear$")
        everything = self.report("operators")
        self.assertIn("float[8,16], float[16,32]", everything)
        self.assertIn("train.py(7): step < train.py(90): <module>", everything)
        self.assertNotIn("device", everything.split("== Operators on the host")[1].splitlines()[3])
        whole = rooflm("report", self.record).stdout
        for absent in ("Time of the device", "Idle time", "Kernels on the device"):
            self.assertNotIn(absent, whole)

    def test_operators_and_what_they_start_on_the_device(self):
        events = [slice_of("python_function", "train.py(3): main", 1, 1, 0, 1000), slice_of("python_function", "nn.Module: Linear_0", 1, 1, 5, 600),
                  slice_of("cpu_op", "aten::linear", 1, 1, 10, 100), slice_of("cpu_op", "aten::mm", 1, 1, 20, 50), call(1, 30, 1),
                  slice_of("cpu_op", "aten::add", 1, 1, 80, 20), call(1, 85, 2), kernel(0, 200, 1, dur=70), kernel(0, 300, 2, dur=30)]
        self.take(events)
        csv = self.report("operators", "--format", "csv")
        self.assertRegex(csv, r"(?m)aten::linear$")
        rows = {line.rsplit(",", 1)[1]: line.split(",") for line in csv.splitlines() if line.endswith(("linear", "mm", "add"))}
        for name, right in (("aten::linear", [30, 100, 1e6, 100, 0, 100]), ("aten::mm", [49, 50, 1e6, 50, 70, 70])):
            self.assertEqual([round(1e6 * float(x)) for x in rows[name][1:7]], right)
        self.assertIn("nn.Module: Linear_0 < train.py(3): main", self.report("operators"))

    def test_json_that_can_be_read_in_one_way(self):
        whole = json.dumps({"traceEvents": [kernel(0, 1, 1, "a b"), kernel(0, 9, 2)]})
        for change, says, name in (
                (lambda text: "\ufeff" + text, "", "a b"),
                (lambda text: text.replace("a b", "a\x01b"), "1 control characters and line breaks within texts", "a\x01b"),
                (lambda text: text.replace("a b", "a\nb"), "1 control characters and line breaks within texts", "a\nb"),
                (lambda text: text.replace("]}", ",]}"), "1 commas before a closing bracket", "a b"),
                (lambda text: text.replace('"stream": 7', '"x": Infinity, "y": -inf, "z": NaN, "stream": 7'),
                 "6 numbers that are NaN or infinite", "a b"),
                (lambda text: text.replace("a b", "C:\\Users\\u"), "2 backslashes that escape nothing", "C:\\Users\\u")):
            said = self.take(change(whole), says=[says])
            self.assertEqual("no valid JSON" in said, bool(says))
            self.assertEqual(self.query("SELECT n.text FROM activity JOIN activity_name n USING (run, name) ORDER BY start_ns"),
                             [(name,), ("k",)])
        for text, says in (('{"traceEvents": [{"ph": "X",\n "name": oops}]}', "line 2, column"),
                           ('{"traceEvents": [{"ph": "X"', "at byte 27 of 27"),
                           ('{"traceEvents": [{"a": NaN,\n "b": "x"y"}]}', "at byte 38 of 42, line 2, column 10"),
                           ('{"traceEvents": [' + "{}, " * 3 + "{} {}]}", "unexpected '{'")):
            self.assertEqual(len(self.take(text, code=3, says=["not valid JSON", says]).splitlines()), 1)

    def database(self, script):
        path = self.folder / "trace.json"
        path.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(path)) as made, made:
            made.executescript(script)
        return path.read_bytes()

    def test_databases_of_nsys_of_any_year(self):
        texts = "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'cudaLaunchKernel_v7000');"
        process = 77 << 24
        for version in ("", "_V2", "_V3"):
            for column in ("demangledName", "shortName", "mangledName"):
                self.take(self.database(texts + f"""
                    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL{version} (start, end, deviceId, streamId, correlationId, globalPid, {column});
                    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL{version} VALUES (10, 20, 0, 7, 5, {process}, 1);
                    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME{version} (start, end, globalTid, correlationId, nameId);
                    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME{version} VALUES (5, 6, {process + 78}, 5, 2);
                    CREATE TABLE OSRT_API (start, end, nameId);INSERT INTO OSRT_API VALUES (1, 2, 1);"""), says=["not read: OSRT_API"])
                self.assertEqual(self.query("SELECT n.text FROM activity JOIN activity_name n USING (run, name) ORDER BY start_ns"),
                                 [("cudaLaunchKernel",), ("gemm",)])
        both = "".join(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL{version} (start, end, deviceId, streamId, correlationId, globalPid, shortName);"
                       f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL{version} VALUES (10, 20, 0, 7, 5, {process}, 1);" for version in ("", "_V2"))
        self.take(self.database(texts + both), says=["not read: CUPTI_ACTIVITY_KIND_KERNEL_V2"])
        self.assertEqual(self.kinds(), {"kernel": 1})
        # Processes that each see one device as their first.
        other = 99 << 24
        self.take(self.database(texts + f"""
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, correlationId, globalPid, shortName);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0, 5, {process}, 1), (10, 20, 0, 5, {other}, 1);
            CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid);
            INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0, 0, 77), (1, 0, 99);"""),
            says=["missing columns", "CUPTI_ACTIVITY_KIND_KERNEL.streamId"])
        self.assertEqual(self.query("SELECT device FROM lane ORDER BY device"), [("cuda:0",), ("cuda:1",)])


if __name__ == "__main__":
    BINARY = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
