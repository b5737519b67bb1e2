#!/usr/bin/env python3
"""Exports of made-up records, each read back as the tool it is for would.

Usage: test_exports.py BINARY SCHEMA [unittest options]"""

import contextlib
import csv
import io
import json
import pathlib
import pickle
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import unittest

import foreign_records as made

BINARY = ""
SCHEMA = ""


def rooflm(*arguments):
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=300)


class Exports(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.gpu = made.write_gpu_record(self.folder / "gpu.rooflm", SCHEMA)
        self.graph = made.write_gpu_record(self.folder / "graph.rooflm", SCHEMA, graph=True)
        self.cpu = made.write_cpu_record(self.folder / "cpu.rooflm", SCHEMA)

    def text(self, record, form, *more, notes=""):
        result = rooflm("export", record, "--format", form, "-o", "-", *more)
        self.assertEqual(result.returncode, 0, result.stderr)
        if notes:
            self.assertRegex(result.stderr, notes)
        return result.stdout

    def rows(self, record, form, *more, notes=""):
        return list(csv.DictReader(io.StringIO(self.text(record, form, *more, notes=notes))))

    def test_kernels_by_name(self):
        rows = self.rows(self.gpu, "cuda_gpu_kern_sum")
        self.assertEqual(list(rows[0]), ["Time (%)", "Total Time (ns)", "Instances", "Avg (ns)", "Med (ns)", "Min (ns)",
                                         "Max (ns)", "StdDev (ns)", "Name"])
        gemm = [6000 + 7 * op + step for step in (3, 4) for op in (0, 1)]
        first = rows[0]
        self.assertEqual(first["Name"], made.OPS[0][3])
        self.assertEqual(first["Total Time (ns)"], str(sum(gemm)))
        self.assertEqual(first["StdDev (ns)"], f"{statistics.stdev(gemm):.1f}")
        self.assertEqual(first["Med (ns)"], f"{statistics.median(gemm):.1f}")
        totals = [int(row["Total Time (ns)"]) for row in rows]
        self.assertEqual(totals, sorted(totals, reverse=True))
        self.assertEqual(first["Time (%)"], f"{100 * totals[0] / sum(totals):.1f}")
        self.assertIn(made.OPS[2][3], [row["Name"] for row in rows], "quoted as CSV wants it")

    def test_trace_of_the_device(self):
        rows = self.rows(self.gpu, "cuda_gpu_trace")
        self.assertEqual(",".join(rows[0]), "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,"
                         "StcSMem (MB),DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,"
                         "Strm,Name")
        self.assertEqual(len(rows), 14)
        self.assertEqual([int(row["Start (ns)"]) for row in rows], sorted(int(row["Start (ns)"]) for row in rows))
        kernel = rows[0]
        self.assertEqual((kernel["GrdX"], kernel["BlkX"], kernel["Reg/Trd"], kernel["StcSMem (MB)"], kernel["Bytes (MB)"],
                          kernel["Device"], kernel["Strm"]), ("8", "128", "40", "0.001", "", "NVIDIA H100 (0)", "7"))
        copy = next(row for row in rows if row["Name"] == "[CUDA memcpy Host-to-Device]")
        self.assertEqual((copy["GrdX"], copy["Bytes (MB)"], copy["Throughput (MB/s)"], copy["DstMemKd"]),
                         ("", "1.000", "500000.000", "Device"))
        self.assertEqual(len(self.rows(self.gpu, "cuda_gpu_trace", "--step", 3)), 7)

    def test_ranges(self):
        api = {row["Name"]: row["Num Calls"] for row in self.rows(self.gpu, "cuda_api_sum")}
        self.assertEqual(api, {"cudaLaunchKernel_v7000": "10", "cudaMemcpyAsync": "2"})
        ranges = {row["Range"]: row for row in self.rows(self.gpu, "nvtx_sum")}
        self.assertEqual((ranges[":step"]["Instances"], ranges[":step"]["Total Time (ns)"]), ("2", "180002"))
        self.assertEqual(ranges[":forward/attention/qk"]["Instances"], "4", "each op had calls of its own")
        graph = {row["Range"] for row in self.rows(self.graph, "nvtx_sum")}
        self.assertEqual(graph, {":step"}, "one call launched all")
        for record in (self.gpu, self.graph):
            rows = self.rows(record, "nvtx_kern_sum")
            found = {(row["NVTX Range"], row["Kernel Name"]): (row["NVTX Inst"], row["Kern Inst"]) for row in rows}
            self.assertEqual(found[":step", made.OPS[0][3]], ("2", "4"))
            self.assertEqual(found[":forward", made.OPS[0][3]], ("2", "4"))
            self.assertEqual(found[":forward/attention/qk", made.OPS[0][3]], ("4", "4"))
            self.assertNotIn((":backward", made.OPS[0][3]), found)
        projected = {row["Range"]: row for row in self.rows(self.graph, "nvtx_gpu_proj_sum")}
        self.assertEqual(projected[":step"]["Total GPU Ops"], "14")
        # From the first kernel's start to the last one's end.
        self.assertEqual(projected[":forward"]["Proj Min (ns)"], str(20_000 + 6000 + 14 + 3))

    def test_database_answers_the_queries_of_nsys(self):
        path = self.folder / "a.sqlite"
        result = rooflm("export", self.gpu, "--format", "nsys-sqlite", "-o", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        with contextlib.closing(sqlite3.connect(path)) as database:
            found = database.execute("""
                SELECT COALESCE(t.value, n.text), s.value, COUNT(*), SUM(k.end - k.start)
                FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
                JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r ON k.correlationId = r.correlationId
                  AND k.globalPid = (r.globalTid & 0xFFFFFFFFFF000000)
                JOIN NVTX_EVENTS AS n ON n.globalTid = r.globalTid AND n.eventType IN (59, 60)
                  AND n.endGlobalTid IS NULL AND r.start >= n.start AND r.end <= n.end
                LEFT JOIN StringIds AS t ON t.id = n.textId
                JOIN StringIds AS s ON s.id = k.demangledName GROUP BY 1, 2""").fetchall()
            kernels = dict(((row[0], row[1]), row[2]) for row in found)
            self.assertEqual(kernels["step", made.OPS[0][3]], 4)
            self.assertEqual(kernels["forward/attention/qk", made.OPS[0][3]], 4)
            self.assertEqual(kernels["optimizer/optimizer", made.OPS[4][3]], 2)
            copies = database.execute(
                "SELECT o.label, m.bytes, d.label, g.name FROM CUPTI_ACTIVITY_KIND_MEMCPY AS m"
                " JOIN ENUM_CUDA_MEMCPY_OPER AS o ON o.id = m.copyKind JOIN ENUM_CUDA_MEM_KIND AS d ON d.id = m.dstKind"
                " JOIN TARGET_INFO_GPU AS g ON g.id = m.deviceId").fetchall()
            self.assertEqual(copies, 2 * [("Host-to-Device", 1_000_000, "Device", "NVIDIA H100")])
            database.execute("SELECT greenContextId, gridX, shortName, staticSharedMemory FROM CUPTI_ACTIVITY_KIND_KERNEL")
            self.assertEqual(database.execute("PRAGMA integrity_check").fetchone(), ("ok",))

    def check_tracks(self, events):
        """No two slices of one track cross."""
        tracks = {}
        for event in events:
            if event["ph"] == "X":
                begin = round(event["ts"] * 1000)
                tracks.setdefault((event["pid"], event["tid"]), []).append((begin, -round(event["dur"] * 1000)))
        for slices in tracks.values():
            open_ends = []
            for begin, length in sorted(slices):
                while open_ends and open_ends[-1] <= begin:
                    open_ends.pop()
                if open_ends:
                    self.assertLessEqual(begin - length, open_ends[-1])
                open_ends.append(begin - length)

    def test_chrome_trace_as_kineto_and_hta_have_it(self):
        text = self.text(self.gpu, "kineto")
        self.assertRegex(text, r'"rank":\s+(\d+)')
        trace = json.loads(text)
        self.assertEqual((trace["schemaVersion"], trace["baseTimeNanoseconds"]), (1, 1795348288298241659))
        self.assertEqual(trace["deviceProperties"], [{"id": 0, "name": "NVIDIA H100", "numSms": 4}])
        events = trace["traceEvents"]
        self.check_tracks(events)
        slices = [event for event in events if event["ph"] == "X"]
        calls = {event["args"]["correlation"]: event for event in slices if event["cat"] == "cuda_runtime"}
        self.assertEqual({event["name"] for event in calls.values()}, {"cudaLaunchKernel", "cudaMemcpyAsync"})
        kernels = [event for event in slices if event["cat"] == "kernel"]
        self.assertEqual(len(kernels), 10)
        for kernel in kernels:
            self.assertIn(kernel["args"]["correlation"], calls)
            self.assertEqual(kernel["args"]["stream"], kernel["tid"])
            self.assertEqual(kernel["pid"], kernel["args"]["device"])
        self.assertEqual(kernels[0]["args"]["blocks per SM"], 4)
        self.assertEqual(kernels[0]["args"]["est. achieved occupancy %"], 50)
        self.assertEqual([event["name"] for event in slices if event["name"].startswith("ProfilerStep")],
                         ["ProfilerStep#3", "ProfilerStep#4"])
        copy = next(event for event in slices if event["cat"] == "gpu_memcpy")
        self.assertEqual((copy["name"], copy["args"]["bytes"]), ("Memcpy HtoD (Host -> Device)", 1_000_000))
        arrows = {(event["ph"], event["id"]) for event in events if event.get("cat") == "ac2g"}
        self.assertEqual({id for what, id in arrows if what == "s"}, {id for what, id in arrows if what == "f"})
        self.assertEqual(len({id for _, id in arrows}), 12)

    def test_graphs_have_an_arrow_for_each_kernel(self):
        events = json.loads(self.text(self.graph, "kineto"))["traceEvents"]
        begun = [event["id"] for event in events if event.get("cat") == "ac2g" and event["ph"] == "s"]
        self.assertEqual(len(begun), 12)
        self.assertEqual(len(set(begun)), 12)
        self.assertLessEqual({300, 400}, set(begun), "the first has the number of the correlation")

    def test_chrome_trace_of_a_processor(self):
        trace = json.loads(self.text(self.cpu, "kineto", notes="no activities of a device"))
        self.check_tracks(trace["traceEvents"])
        ops = [event for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]
        self.assertEqual(len(ops), 2 * len(made.OPS))
        self.assertEqual(ops[0]["args"]["scope"], "h.0/attention/qk")
        names = [event["name"] for event in trace["traceEvents"] if event.get("cat") == "user_annotation"]
        self.assertEqual(sorted(names), sorted(2 * ["forward", "backward", "optimizer"] + ["ProfilerStep#0", "ProfilerStep#1"]))
        memory = [event["args"]["Bytes"] for event in trace["traceEvents"] if event["name"] == "[memory]"]
        self.assertEqual(memory, [1000, 4096, 600, -600, -4096])

    def test_what_a_format_cannot_show_is_said(self):
        for form in ("cuda_gpu_kern_sum", "cuda_gpu_trace", "cuda_api_sum", "nvtx_kern_sum", "nvtx_gpu_proj_sum"):
            self.assertEqual(self.rows(self.cpu, form, notes="run 1 has no .*: the report has no rows"), [])
        self.assertEqual(len(self.rows(self.cpu, "nvtx_sum")), 7)
        result = rooflm("export", self.graph, "--format", "nsys-sqlite", "-o", self.folder / "g.sqlite")
        self.assertIn("16 phases and ops were launched by calls that launched others", result.stderr)

    def test_memory_snapshot(self):
        for record in (self.gpu, self.cpu):
            path = self.folder / f"{record.stem}.pickle"
            self.assertEqual(rooflm("export", record, "--format", "torch-memory", "-o", path).returncode, 0)
            data = path.read_bytes()
            snapshot = pickle.loads(data)
            made.check_for_memory_viz(self, data, snapshot)
            actions = [(entry["action"], entry["size"]) for entry in snapshot["device_traces"][0]]
            self.assertEqual(actions, [("alloc", 1000), ("alloc", 4096), ("alloc", 600), ("free_requested", 600),
                                       ("free_completed", 600), ("free_requested", 4096), ("free_completed", 4096),
                                       ("snapshot", 0)])
            times = [entry["time_us"] for entry in snapshot["device_traces"][0]]
            self.assertEqual(times, sorted(times))
            self.assertGreaterEqual(times[0], 1795348288298241, "since 1970, as its clock has it")
            self.assertEqual([entry["category"] for entry in snapshot["device_traces"][0][:3]],
                             ["weight", "activation", "workspace"])
            frame = snapshot["device_traces"][0][1]["frames"][0]
            self.assertEqual(frame["name"], "kept (activation)")
            self.assertIn("h.0/attention/qk", frame["filename"])

    def test_flame_graphs(self):
        folded = self.text(self.graph, "folded")
        stacks = dict(line.rsplit(" ", 1) for line in folded.splitlines())
        qk = "forward;h.0;attention;qk;matmul;gemm"
        self.assertEqual(stacks[qk], str(2 * 6000 + 7))
        self.assertIn("step;copy host to device", stacks)
        profile = json.loads(self.text(self.graph, "speedscope"))
        self.assertEqual(profile["$schema"], "https://www.speedscope.app/file-format-schema.json")
        frames, (sampled,) = profile["shared"]["frames"], profile["profiles"]
        self.assertEqual((sampled["type"], sampled["unit"]), ("sampled", "nanoseconds"))
        self.assertEqual(sampled["endValue"] - sampled["startValue"], sum(sampled["weights"]))
        again = {";".join(frames[i]["name"] for i in sample): str(weight)
                 for sample, weight in zip(sampled["samples"], sampled["weights"], strict=True)}
        self.assertEqual(again, stacks)
        self.assertIn("forward;loss;cross_entropy;", self.text(self.cpu, "folded"))

    def test_openmetrics(self):
        text = self.text(self.cpu, "openmetrics")
        made.check_openmetrics(self, text)
        self.assertRegex(text, r'\nrooflm_step_seconds\{run="made up"\} 5e-05\n')
        self.assertRegex(text, r'phase="forward"\} 2e-05\n')
        made.check_openmetrics(self, self.text(self.gpu, "openmetrics"))

    def edit(self, record, *statements):
        with contextlib.closing(sqlite3.connect(record)) as database, database:
            for statement in statements:
                database.execute(*statement if isinstance(statement, tuple) else (statement,))
        return record

    def imported(self, name, events, **others):
        """The record of a Chrome trace."""
        trace, record = self.folder / f"{name}.json", self.folder / f"{name}.rooflm"
        trace.write_text(json.dumps({"traceEvents": events, **others}))
        result = rooflm("import", trace, "-o", record)
        self.assertEqual(result.returncode, 0, result.stderr)
        return record

    def snapshot(self, record, notes="^"):
        """What memory_viz reads, and the most bytes that are allocated at once on the first device."""
        path = self.folder / "snapshot.pickle"
        result = rooflm("export", record, "--format", "torch-memory", "-o", path, "--overwrite")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, notes)
        snapshot = pickle.loads(path.read_bytes())
        made.check_for_memory_viz(self, path.read_bytes(), snapshot)
        live, peak = 0, 0
        for entry in snapshot["device_traces"][0]:
            live += {"alloc": 1, "free_completed": -1}.get(entry["action"], 0) * entry["size"]
            peak = max(peak, live)
        return snapshot, peak

    def test_a_step_begins_with_the_call_of_a_held_replay(self):
        """Its graph is launched before the step is timed; nsys and readers of Kineto look for that call within the step."""
        held = self.edit(self.graph, "UPDATE activity SET start_ns = start_ns + 3500 WHERE step IS NOT NULL AND lane = 2")
        path = self.folder / "held.sqlite"
        self.assertEqual(rooflm("export", held, "--format", "nsys-sqlite", "-o", path).returncode, 0)
        with contextlib.closing(sqlite3.connect(path)) as database:
            found = database.execute("""
                SELECT n.start, COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
                JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r ON k.correlationId = r.correlationId
                JOIN NVTX_EVENTS AS n ON n.globalTid = r.globalTid AND r.start >= n.start AND r.end <= n.end
                GROUP BY n.start""").fetchall()
        self.assertEqual(found, [(3_001_000, 5), (4_001_000, 5)])
        events = json.loads(self.text(held, "kineto"))["traceEvents"]
        self.assertEqual([event["ts"] for event in events if event["name"].startswith("ProfilerStep")], [3001, 4001])
        # Not where another step is still going on.
        self.edit(held, "UPDATE activity SET end_ns = 4002000 WHERE step = 3 AND lane = 2")
        events = json.loads(self.text(held, "kineto", "--step", 4))["traceEvents"]
        self.assertEqual([event["ts"] for event in events if event["name"].startswith("ProfilerStep")], [4002])

    def plan(self):
        return self.edit(
            self.cpu, "UPDATE run SET kind = 'plan'", "UPDATE config SET value = 'h100-sxm' WHERE key = 'device'",
            "DELETE FROM event", "DELETE FROM tensor", "DELETE FROM memory_event",
            "INSERT INTO lane VALUES (1, 0, 'device', 'h100-sxm', NULL, NULL, 'compute'), (1, 1, 'link', '', NULL, NULL, 'NVLink4')",
            "INSERT INTO activity_name VALUES (1, 0, 'op', 'matmul'), (1, 1, 'collective', 'all_gather'),"
            " (1, 2, 'idle', 'exposed communication')",
            "INSERT INTO activity VALUES (1, 0, 1, 1, 0, 500, NULL, NULL, 0, 0, NULL), (1, 1, 0, 0, 500, 900, NULL, NULL, 0, 0, NULL),"
            " (1, 2, 0, 0, 900, 1000, NULL, NULL, 0, 2, NULL), (1, 3, 0, 0, 1000, 1500, NULL, NULL, 0, 1, NULL),"
            " (1, 4, 2, 0, 0, 500, NULL, NULL, 0, NULL, NULL)",
            ("INSERT INTO memory_event (run, seq, op, bytes, live_bytes) VALUES (1, 0, -1, 1000, 1000), (1, 1, 0, 4096, 5096),"
             " (1, 2, 1, 600, 5696), (1, 3, 2, -1000, 4696), (1, 4, 4, -3696, 1000)",))

    def test_memory_of_a_plan(self):
        """It has sums, and neither tensors nor addresses: 1000 bytes that are freed are 600 and 400 of a larger block."""
        snapshot, peak = self.snapshot(self.plan(), notes="^$")
        self.assertEqual(peak, 5696)
        sizes = [entry["size"] for entry in snapshot["device_traces"][0] if entry["action"] == "alloc"]
        self.assertEqual(sorted(sizes), [400, 600, 1000, 3696])

    def test_chrome_trace_of_a_plan(self):
        trace = json.loads(self.text(self.plan(), "kineto"))
        self.check_tracks(trace["traceEvents"])
        self.assertEqual([device["name"] for device in trace["deviceProperties"]], ["h100-sxm"])
        memory = [event for event in trace["traceEvents"] if event["name"] == "[memory]"]
        self.assertEqual({(event["args"]["Device Type"], event["args"]["Device Id"]) for event in memory}, {(1, 0)})
        counters = [event for event in trace["traceEvents"] if event["ph"] == "C"]
        self.assertEqual({event["name"] for event in counters}, {"memory h100-sxm"})
        times = [event["ts"] for event in counters]
        self.assertEqual(times, sorted(times), "op 2 was planned to run before op 1")
        self.assertEqual(counters[-1]["args"]["bytes"], 1000)
        slices = {event["name"]: event for event in trace["traceEvents"] if event["ph"] == "X"}
        self.assertEqual((slices["ProfilerStep#0"]["ts"], slices["ProfilerStep#0"]["dur"]), (0, 1.5))
        self.assertEqual(slices["exposed communication"]["cat"], "gpu_user_annotation")
        result = rooflm("export", self.cpu, "--format", "nsys-sqlite", "-o", self.folder / "plan.sqlite")
        self.assertRegex(result.stderr, "phases and ops have no calls that launched them: nsys would not see them")
        self.edit(self.cpu, "UPDATE lane SET device = 'stage ' || lane, kind = 'device'")
        trace = json.loads(self.text(self.cpu, "kineto"))
        self.assertEqual([(device["id"], device["name"]) for device in trace["deviceProperties"]],
                         [(0, "stage 0"), (1, "stage 1")])

    def test_memory_of_several_devices(self):
        def change(ts, size, address, kind, device):
            return {"ph": "i", "name": "[memory]", "ts": ts, "args": {"Bytes": size, "Addr": address, "Device Type": kind,
                                                                      "Device Id": device}}

        host = [change(1, 700, 64, 0, -1), change(6, -700, 64, 0, -1)]
        gpus = [change(2, 1000, 64, 1, 0), change(3, 400, 64, 1, 1), change(4, -1000, 64, 1, 0), change(5, -400, 64, 1, 1)]
        both = self.imported("both", host + gpus)
        snapshot, peak = self.snapshot(both, notes="2 memory events are of the host")
        self.assertEqual([len(trace) for trace in snapshot["device_traces"]], [3, 3])
        self.assertEqual(peak, 1000)
        overview = rooflm("report", both, "--view", "overview").stdout
        self.assertRegex(overview, r"peak memory +1\.00 kB", "of one device, not the sum of all")
        self.assertIn("of cuda:0, which holds most; 3 devices have memory", rooflm("report", both, "--view", "memory").stdout)
        self.assertEqual(self.snapshot(self.imported("host", host), notes="^$")[1], 700)
        figures = self.text(both, "openmetrics")
        made.check_openmetrics(self, figures)
        peaks = dict(re.findall(r'^rooflm_peak_bytes\{.*,device="(\S+)"\} (\d+)$', figures, re.M))
        self.assertEqual(peaks, {"cpu": "700", "cuda:0": "1000", "cuda:1": "400"}, "no device stands for all")

    def test_memory_of_a_chrome_trace_has_addresses(self):
        trace = json.loads(self.text(self.gpu, "kineto"))
        again = self.imported("again", trace["traceEvents"])
        self.assertEqual(self.snapshot(again)[1], 5696)

    def test_flame_graphs_of_other_programs(self):
        """What operators of the host launched counts, not what the host took; without a device it is their own time."""
        def slice_of(category, name, ts, dur, **args):
            return {"ph": "X", "cat": category, "name": name, "pid": 9, "tid": 9, "ts": ts, "dur": dur, "args": args}

        ops = [slice_of("user_annotation", "phase", 0, 500), slice_of("cpu_op", "linear", 10, 60),
               slice_of("cpu_op", "addmm", 20, 40), slice_of("cpu_op", "linear", 100, 30)]
        launch = [slice_of("cuda_runtime", "cudaLaunchKernel", 30, 2, correlation=5),
                  slice_of("kernel", "gemm", 40, 5, correlation=5, device=0, stream=7)]
        self.assertEqual(self.text(self.imported("gpu_ops", ops + launch), "folded"), "phase;gemm 5000\n")
        self.assertEqual(self.text(self.imported("host_ops", ops), "folded"),
                         "phase;linear 50000\nphase;linear;addmm 40000\n")

    def test_an_op_lies_in_its_own_phase(self):
        """Where phases overlap: the optimizer runs while the last gradients do."""
        self.edit(self.graph, "UPDATE activity SET start_ns = start_ns - 25000, end_ns = end_ns + 25000 WHERE op = 3",
                  "UPDATE activity SET start_ns = start_ns - 15000 WHERE op = 4")
        rows = {row["Range"]: float(row["Avg Num Child"]) for row in self.rows(self.graph, "nvtx_gpu_proj_sum")}
        self.assertEqual([rows[name] for name in (":forward", ":backward", ":optimizer")], [3, 1, 1])

    def test_each_rank_has_its_own_steps(self):
        """Two processes in one trace, of which the second has half of the kernels, and multiprocessors of its own."""
        def slice_of(category, name, process, ts, dur, **args):
            return {"ph": "X", "cat": category, "name": name, "pid": process, "tid": process, "ts": ts, "dur": dur, "args": args}

        events, number = [], 0
        for step in range(3):
            for rank, kernels in ((0, 4), (1, 2)):
                process, begin = 1000 + rank, 1000 * step + 10 * rank
                events.append(slice_of("user_annotation", f"ProfilerStep#{step}", process, begin, 900))
                for i in range(kernels):
                    number += 1
                    at = begin + 50 + 20 * i
                    events += [slice_of("cuda_runtime", "cudaLaunchKernel", process, at, 5, correlation=number),
                               slice_of("kernel", "k", rank, at + 10, 5, correlation=number, device=rank, stream=7,
                                        grid=[8, 1, 1], block=[32, 1, 1])]
        devices = [{"id": 0, "name": "H100", "numSms": 4}, {"id": 1, "name": "A100", "numSms": 2}]
        record = self.imported("ranks", events, deviceProperties=devices)
        steps = {}
        for row in self.rows(record, "nvtx_kern_sum"):
            if row["NVTX Range"].startswith((":ProfilerStep#", ":step")):  # where both last as long it is the device's
                steps[row["TID"]] = steps.get(row["TID"], 0) + int(row["Kern Inst"])
        self.assertEqual(steps, {"1000": 12, "1001": 6})
        trace = json.loads(self.text(record, "kineto"))
        self.assertEqual(trace["deviceProperties"], devices)
        blocks = {event["args"]["device"]: event["args"]["blocks per SM"] for event in trace["traceEvents"] if event.get("cat") == "kernel"}
        self.assertEqual(blocks, {0: 2, 1: 4})

    def test_the_rank_of_a_trace_is_kept(self):
        ranks = {"backend": "nccl", "rank": 3, "world_size": 8}
        record = self.imported("third", [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 9, "tid": 9, "ts": 1, "dur": 1}],
                               distributedInfo=ranks)
        self.assertEqual(json.loads(self.text(record, "kineto"))["distributedInfo"], ranks)

    def test_samples_beside_the_steps_are_counted(self):
        self.edit(self.gpu, "INSERT INTO activity_name VALUES (1, 90, 'sample', 'main;work')",
                  "INSERT INTO activity VALUES (1, 900, 90, 2, 3020000, 3020000, NULL, NULL, NULL, NULL, NULL),"
                  " (1, 901, 90, 2, 9000000, 9000000, NULL, NULL, NULL, NULL, NULL)")
        self.assertEqual(self.text(self.gpu, "stacks", notes="1 samples are left out: before the first step"), "main;work 1\n")

    def test_openmetrics_of_several_ranks(self):
        """MFU is model FLOP/s by peak FLOP/s, both of all ranks."""
        self.edit(self.cpu, "INSERT INTO config VALUES (1, 'dp', '4', 'integer')",
                  "INSERT INTO fact (run, key, value) VALUES (1, 'model_flop', 4e6), (1, 'peak_flop_per_s', 1e11)")
        figures = dict(re.findall(r"^rooflm_(\w+)\{[^}]*\} (\S+)$", self.text(self.cpu, "openmetrics"), re.M))
        self.assertEqual(float(figures["peak_flop_per_second"]), 4e11)
        self.assertAlmostEqual(float(figures["mfu_ratio"]),
                               float(figures["model_flop_per_second"]) / float(figures["peak_flop_per_second"]))
        self.edit(self.cpu, "DELETE FROM sample WHERE phase = 'step'", "DELETE FROM memory_event")
        result = rooflm("export", self.cpu, "--format", "openmetrics", "-o", "-")
        self.assertNotIn("no figures", result.stderr, "phases were timed")

    def test_outputs_obey_the_rule(self):
        def fails(code, *arguments, says):
            result = rooflm("export", *arguments)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn(says, result.stderr)

        path = self.folder / "a.json"
        fails(2, self.gpu, "--format", "kineto", "-o", self.gpu, "--overwrite", says="this command reads that file")
        fails(2, self.gpu, "--format", "kinto", "-o", path, says="did you mean 'kineto'")
        fails(2, self.gpu, "-o", path, says="--format")
        fails(2, self.gpu, "--format", "kineto", says="-o")
        fails(2, self.gpu, "--format", "torch-memory", "-o", "-", says="is not a text format")
        fails(2, self.gpu, "--format", "kineto", "-o", path, "--step", 99, says="no events of that step")
        fails(2, self.gpu, "--format", "kineto", "-o", path, "--run", "other", says="name one with --run: 1 'made up'\n")
        self.assertFalse(path.exists())
        for form in ("kineto", "nsys-sqlite", "torch-memory"):
            path.write_text("mine")
            fails(3, self.gpu, "--format", form, "-o", path, says="--overwrite")
            self.assertEqual(path.read_text(), "mine")
            result = rooflm("export", self.gpu, "--format", form, "-o", path, "--overwrite", "--run", "made up")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertNotEqual(path.read_bytes()[:4], b"mine")
        self.assertEqual([p.name for p in self.folder.glob(".*")], [], "nothing is left")
        self.assertTrue(re.match("kineto", rooflm("export", "--help").stdout.split("Formats:\n")[1].strip()))


if __name__ == "__main__":
    BINARY, SCHEMA = sys.argv[1], pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
