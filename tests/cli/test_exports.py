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
                                       ("free_completed", 600), ("free_requested", 4096), ("free_completed", 4096)])
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
