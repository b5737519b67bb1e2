"""rooflm record: collectives of NCCL. The plugin is driven as NCCL drives it, through declarations of its own, and streams of
two ranks are brought together on one clock."""
import contextlib
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import unittest

import streams

ROOFLM = os.path.abspath(sys.argv.pop(1))
MIB, US = 1 << 20, 1000
# As NCCL's headers declare it (plugins/profiler/example/nccl/profiler_v1.h to v5.h): layouts of events, arguments of init.
DRIVER = '''
import ctypes, os, sys
from ctypes import (CFUNCTYPE, POINTER, Structure, Union, byref, c_char_p, c_int, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p)
version = int(sys.argv[1])
number = c_uint8 if version == 1 else c_char_p
named = [("name", c_char_p), ("hash", c_uint64)] if version < 4 else []
class Coll(Structure):
    _fields_ = named + [("seq", c_uint64), ("func", number), ("send", c_void_p), ("recv", c_void_p), ("count", c_size_t),
                        ("root", c_int), ("dtype", number)]
    _fields_ += ([("op", c_uint32), ("traffic", c_size_t)] if version == 1 else [("traffic", c_size_t)] if version == 2 else [])
    _fields_ += [("channels", c_uint8), ("warps", c_uint8), ("algo", number), ("proto", number), ("group", c_void_p)]
class P2p(Structure):
    middle = [("dtype", number), ("count", c_size_t)]
    _fields_ = named + [("func", number), ("buffer", c_void_p)] + middle + [("peer", c_int), ("channels", c_uint8)]
class Any(Union):
    _fields_ = [("coll", Coll), ("p2p", P2p)]
class Event(Structure):
    _fields_ = [("type", c_uint64 if version > 4 else c_uint8), ("parent", c_void_p), ("rank", c_int), ("of", Any)]
start_type = CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p), POINTER(Event))
more = {4: [POINTER(c_int), c_char_p, c_uint64, c_int, c_int, c_int, c_void_p],
        5: [c_uint64, POINTER(c_int), c_char_p, c_int, c_int, c_int, c_void_p]}.get(version, [POINTER(c_int)])
class Profiler(Structure):
    _fields_ = [("name", c_char_p), ("init", CFUNCTYPE(c_int, POINTER(c_void_p), *more)), ("start", start_type),
                ("stop", CFUNCTYPE(c_int, c_void_p)), ("state", CFUNCTYPE(c_int, c_void_p, c_int, c_void_p)),
                ("finalize", CFUNCTYPE(c_int, c_void_p))]
library = ctypes.CDLL(os.environ["NCCL_PROFILER_PLUGIN"])
plugin = Profiler.in_dll(library, f"ncclProfiler_v{version}")
context, mask = c_void_p(), c_int()
arguments = {4: (byref(mask), b"pg", 0xabc, 1, 8, 3, None), 5: (0xabc, byref(mask), b"pg", 1, 8, 3, None)}
assert plugin.init(byref(context), *arguments.get(version, (byref(mask),))) == 0
assert mask.value == 6, mask.value
def call(kind, fill):
    event, handle = Event(type=kind, rank=3), c_void_p()
    fill(event.of)
    assert plugin.start(context, byref(handle), byref(event)) == 0
    plugin.state(handle, 3, None)
    if handle.value:
        assert plugin.stop(handle) == 0
    return handle.value
def reduce_(seq):
    def fill(of):
        of.coll.seq, of.coll.count, of.coll.root = seq, 1 << 20, 0
        of.coll.func, of.coll.dtype = (4, 7) if version == 1 else (b"AllReduce", b"ncclFloat32")
        if version > 1: of.coll.algo, of.coll.proto = b"RING", b"LL128"
        if version < 4: of.coll.hash = 0xabc
    return fill
def send(of):
    of.p2p.count, of.p2p.peer = 512, 5
    of.p2p.func, of.p2p.dtype = (6, 9) if version == 1 else (b"Send", b"ncclBfloat16")
    if version < 4: of.p2p.hash = 0xabc
for seq in range(3):
    assert call(2, reduce_(seq))
assert call(4, send)
assert not call(1, lambda of: None)     # of a group
if version > 4: assert not call(1 << 8, lambda of: None)
assert plugin.stop(None) == 0
assert plugin.finalize(context) == 0
print("done")
'''


class Case(streams.Case):
    binary = ROOFLM

    def tables(self, *records):
        done = self.rooflm("report", *records, "--view", "collectives", "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return {table["id"]: table for view in json.loads(done.stdout) for table in view["tables"]}


    def text(self, *records):
        return " ".join(self.rooflm("report", *records, "--view", "collectives").stdout.split())


class Plugin(Case):
    def test_every_version_of_the_interface(self):
        for version in range(1, 6):
            done = self.rooflm("record", "--overwrite", "-o", "x.rooflm", "--", sys.executable, "-c", DRIVER, str(version))
            self.assertEqual((done.returncode, done.stdout), (0, "done\n"), done.stderr)
            rows = self.tables("x.rooflm")["collectives"]["rows"]
            found = {row["op"]: (row["dtype"], row["ranks"], row["size"], row["calls"], row["time_s"]) for row in rows}
            ranks = 8 if version > 3 else None
            self.assertEqual(found, {"AllReduce": ("Float32", ranks, 4 * MIB, 3, None), "Send": ("Bfloat16", ranks, 1024, 1, None)},
                             version)
            extras = [json.loads(text) for (text,) in self.rows("SELECT text FROM activity_extra WHERE text LIKE '%communicator%'")]
            reduces = [extra for extra in extras if "peer" not in extra]
            self.assertEqual([(extra["communicator"], extra["sequence"], extra["rank"]) for extra in reduces],
                             [("abc", sequence, 3) for sequence in range(3)])
            self.assertEqual([extra["peer"] for extra in extras if "peer" in extra], [5])
            self.assertEqual(reduces[0].get("algorithm"), "RING" if version > 3 else None)
            self.assertEqual(self.rooflm("verify", "x.rooflm").returncode, 0)

    def test_a_plugin_of_the_program_is_kept(self):
        show = "import os; print(os.environ['NCCL_PROFILER_PLUGIN'])"
        done = self.rooflm("record", "--", sys.executable, "-c", show, env={**os.environ, "NCCL_PROFILER_PLUGIN": "theirs"})
        self.assertEqual(done.stdout, "theirs\n")

    def test_without_a_recording_it_asks_for_nothing(self):
        library = pathlib.Path(ROOFLM).parent / "librooflm_inject.so"
        script = DRIVER.replace("mask.value == 6", "mask.value == 0").split("def call")[0]
        done = subprocess.run([sys.executable, "-c", script, "5"], env={**os.environ, "NCCL_PROFILER_PLUGIN": str(library)},
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


def rank_stream(rank, late_us, source="plugin", boot="one", steps=6, shift_ns=0, timed=0, communicator="7f", unmarked=0):
    """A step of one kernel, then an all-reduce and a fused pair of gathers; this rank begins them `late_us` late and all end
    together. The process began `rank` ms after the first, and the clock of this boot is off by `shift_ns`. After the third step
    come `timed` steps that are timed alone: NCCL tells of its calls, and no kernel is recorded. The first `unmarked` are no steps."""
    stream = streams.Stream(process=100 + rank, start_ns=10**12 + rank * 1000 * US + shift_ns)
    stream.facts.update({"boot": boot, "environment RANK": str(rank)})
    at = -rank * 1000 * US + 10_000 * US
    for step in range(steps + timed):
        begin = at
        is_timed = 3 <= step < 3 + timed
        launch = (lambda *arguments: None) if is_timed else stream.launch
        launch("gemm", at, at + 10 * US, at + 100 * US)
        def collective(op, sequence, count, kind, call):
            extra = json.dumps({"communicator": communicator, "ranks": 2, "rank": rank, "count": count, "dtype": kind}, separators=(",", ":"))
            size = count * (4 if kind == "Float32" else 2)
            if source == "plugin":
                stream.row(streams.RANGE, op, call + 5 * US, call + 6 * US, stream.process, what=streams.COLLECTIVE, size=size,
                           other=sequence, extra=extra)
            else:
                stream.row(streams.RANGE, "NCCL:nccl" + op, call - 2 * US, call + 8 * US, stream.process,
                           extra=f'{{"bytes":{size},"communicator":"{communicator}"}}')
        call = at + 20 * US
        start = at + 200 * US + late_us * US
        launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", call, start, at + 300 * US)
        collective("AllReduce", step, 1 << 18, "Float32", call)
        call = at + 40 * US
        launch("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)", call, at + 310 * US, at + 350 * US)
        if source == "plugin":
            collective("AllGather", 2 * step, 3 << 10, "Bfloat16", call)
            collective("AllGather", 2 * step + 1, 1 << 10, "Bfloat16", call + 1)
        at += 500 * US
        if step >= unmarked:
            stream.row(streams.RANGE, "step, timed alone" if is_timed else "step", begin, at - US, stream.process, what=streams.STEP)
    return stream


class Ranks(Case):
    def imported(self, name, stream):
        (self.folder / f"{name}.stream").write_bytes(stream.bytes())
        done = self.rooflm("import", f"{name}.stream", "-o", f"{name}.rooflm")
        self.assertEqual(done.returncode, 0, done.stderr)
        verified = self.rooflm("verify", f"{name}.rooflm")
        self.assertEqual(verified.returncode, 0, verified.stdout)
        return f"{name}.rooflm"

    def check_two(self, tables):
        rows = {(row["op"], row["size"]): row for row in tables["collectives"]["rows"]}
        reduce_ = rows["AllReduce", MIB]
        self.assertEqual((reduce_["calls"], reduce_["calls_per_step"], reduce_["ranks"], reduce_["dtype"]), (12, 1, 2, "Float32"))
        self.assertAlmostEqual(reduce_["time_s"], 80e-6, delta=1e-9)      # 100 and 60 us
        self.assertAlmostEqual(reduce_["waiting_s"], 20e-6, delta=1e-9)   # 40 and 0
        self.assertAlmostEqual(reduce_["transfer_s"], 60e-6, delta=1e-9)
        self.assertAlmostEqual(reduce_["busbw"], MIB / 60e-6, delta=1e3)  # 2 (n-1)/n = 1
        # One kernel for two gathers: by their bytes.
        large, small = rows["AllGather", 2 * 6144], rows["AllGather", 2 * 2048]
        self.assertAlmostEqual(large["time_s"], 30e-6, delta=1e-9)
        self.assertAlmostEqual(small["time_s"], 10e-6, delta=1e-9)
        self.assertAlmostEqual(large["busbw"], 6144 / 30e-6, delta=1e3)
        ranks = {row["rank"]: row for row in tables["collectives.ranks"]["rows"]}
        self.assertAlmostEqual(ranks[0]["step_waiting_s"], 40e-6, delta=1e-9)
        self.assertAlmostEqual(ranks[1]["step_waiting_s"], 0, delta=1e-12)
        self.assertEqual((ranks[0]["calls"], ranks[1]["last"]), (18, 6 / 18))

    def test_waiting_for_the_last_rank_is_apart_from_transfer(self):
        records = [self.imported(f"r{rank}", rank_stream(rank, late)) for rank, late in ((0, 0), (1, 40))]
        tables = self.tables(*records)
        self.check_two(tables)
        text = self.text(*records)
        self.assertIn("AllReduce", text)
        self.assertNotIn("clocks agree", text)

    def test_ranks_whose_steps_begin_one_apart(self):
        records = [self.imported("r0", rank_stream(0, 0)), self.imported("r1", rank_stream(1, 40, unmarked=1))]
        reduce_ = next(row for row in self.tables(*records)["collectives"]["rows"] if row["op"] == "AllReduce")
        self.assertEqual(reduce_["calls"], 11)
        self.assertAlmostEqual(reduce_["waiting_s"], 6 * 40e-6 / 11, delta=1e-9)
        self.assertAlmostEqual(reduce_["transfer_s"], 60e-6, delta=1e-9)

    def test_calls_in_steps_that_are_timed_alone_take_no_kernel_of_another_step(self):
        for source in ("plugin", "nvtx"):
            records = [self.imported(f"{source}{rank}", rank_stream(rank, late, source, timed=40)) for rank, late in ((0, 0), (1, 40))]
            tables = self.tables(*records)
            reduce_ = next(row for row in tables["collectives"]["rows"] if row["op"] == "AllReduce")
            self.assertEqual((reduce_["calls"], reduce_["calls_per_step"]), (12, 1), source)
            self.assertAlmostEqual(reduce_["time_s"], 80e-6, delta=1e-9)
            self.assertAlmostEqual(reduce_["waiting_s"], 20e-6, delta=1e-9)
            if source == "plugin":
                self.check_two(tables)

    def test_ranks_of_several_machines_agree_on_the_time_of_day(self):
        # The made-up streams begin at the same second of 1970: the second one's own clock says nothing.
        second = rank_stream(1, 40, boot="two", shift_ns=10**15)
        records = [self.imported("r0", rank_stream(0, 0)), self.imported("r1", second)]
        tables = self.tables(*records)
        self.assertIn("the ranks ran on several machines", self.text(*records))
        waiting = [row["waiting_s"] for row in tables["collectives"]["rows"] if row["op"] == "AllReduce"]
        self.assertGreater(waiting[0], 0)

    def test_exports_have_them_beside_their_kernels(self):
        self.imported("r0", rank_stream(0, 0))
        for form in ("kineto", "nsys-sqlite", "folded"):
            self.assertEqual(self.rooflm("export", "r0.rooflm", "--format", form, "-o", f"x.{form}").returncode, 0, form)
        events = json.loads((self.folder / "x.kineto").read_text())["traceEvents"]
        self.assertEqual({event["cat"] for event in events if event["name"] == "AllReduce"}, {"gpu_user_annotation"})

    def timelines(self, *records):
        """Of each run: lanes, notes."""
        done = self.rooflm("report", *records, "--html", "x.html", "--overwrite", "--view", "overview")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = (self.folder / "x.html").read_text()
        start = text.index('type="application/json">', text.index('id="rooflm-data"')) + len('type="application/json">')
        return [run["timeline"] for run in json.loads(text[start:text.index("</script>", start)])["runs"]]

    def test_records_of_one_job_are_on_one_timeline(self):
        for source in ("plugin", "nvtx"):
            records = [self.imported(f"{source}{rank}", rank_stream(rank, late, source)) for rank, late in ((0, 0), (1, 40))]
            first, second = self.timelines(*records)
            self.assertEqual([lane.get("rank") for lane in first["lanes"] if lane["kind"] == "device"], [0, 1], source)
            self.assertIn("rank 0 100 us and 40.0 us; rank 1 100 us and 0 s.", first["notes"][-1])
            self.assertNotIn("rank", second["lanes"][0])
            self.assertIn(f"The timeline of {records[0]} has all ranks", second["notes"][-1])
            done = self.rooflm("export", *records, "--format", "kineto", "-o", f"{source}.json")
            self.assertEqual(done.returncode, 0, done.stderr)
            trace = json.loads((self.folder / f"{source}.json").read_text())
            self.assertEqual(trace["distributedInfo"]["world_size"], 2)
            kernels = [(event["pid"], event["ts"]) for event in trace["traceEvents"] if event["name"].startswith("ncclDevKernel_AllReduce") and event["args"]["step"] == 0]
            self.assertEqual(sorted(pid for pid, _ in kernels), [0, 1000])
            self.assertEqual([device["id"] for device in trace["deviceProperties"]], [0, 1])
            # What each rank counted from anew differs in the trace of all: calls, and the devices of both.
            owners = {}
            for event in trace["traceEvents"]:
                if event["ph"] == "X" and "correlation" in event["args"]:
                    owners.setdefault(event["args"]["correlation"], set()).add(event["pid"] // 1000)
            self.assertEqual({len(ranks) for ranks in owners.values()}, {1})
            self.assertEqual({(event["pid"], event["args"]["device"]) for event in trace["traceEvents"] if event.get("cat") == "kernel"},
                             {(0, 0), (1000, 1)})
            alone = self.rooflm("export", records[1], "--format", "kineto", "-o", "alone.json", "--overwrite")
            self.assertEqual(alone.returncode, 0, alone.stderr)
            ranks = json.loads((self.folder / "alone.json").read_text())["distributedInfo"]
            if source == "plugin":
                self.assertEqual((ranks["rank"], ranks["world_size"]), (1, 2))
            # A step that one rank lacks.
            with contextlib.closing(sqlite3.connect(self.folder / records[1])) as record, record:
                record.execute("UPDATE activity SET step = NULL WHERE step = 0")
            done = self.rooflm("export", *records, "--format", "kineto", "-o", "step.json", "--step", "0", "--overwrite")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("rank 1 has no events of step 0", done.stderr)
            done = self.rooflm("export", *records, "--format", "kineto", "-o", "step.json", "--step", "99", "--overwrite")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertAlmostEqual(max(ts for _, ts in kernels) - min(ts for _, ts in kernels), 40, places=3)

    def test_records_of_different_jobs_are_not_exported_together(self):
        self.imported("r0", rank_stream(0, 0))
        self.imported("alone", rank_stream(1, 40, communicator="8a"))
        for form, said in (("kineto", "export each alone"), ("folded", "takes one record")):
            done = self.rooflm("export", "r0.rooflm", "alone.rooflm", "--format", form, "-o", "x.out")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(said, done.stderr)

    def test_one_rank_alone(self):
        record = self.imported("r0", rank_stream(0, 0))
        tables = self.tables(record)
        reduce_ = next(row for row in tables["collectives"]["rows"] if row["op"] == "AllReduce")
        self.assertEqual((reduce_["waiting_s"], reduce_["transfer_s"]), (None, None))
        self.assertAlmostEqual(reduce_["busbw"], MIB / 100e-6, delta=1e3)
        self.assertIn("give the records of all ranks", self.text(record))

    def test_ranges_of_nvtx_are_the_second_source(self):
        tables = self.tables(*[self.imported(f"r{rank}", rank_stream(rank, late, source="nvtx")) for rank, late in ((0, 0), (1, 40))])
        reduce_ = tables["collectives"]["rows"][0]
        self.assertEqual((reduce_["op"], reduce_["size"], reduce_["calls"], reduce_["ranks"]), ("AllReduce", MIB, 12, None))
        self.assertAlmostEqual(reduce_["waiting_s"], 20e-6, delta=1e-9)
        self.assertIsNone(reduce_["busbw"])


if __name__ == "__main__":
    unittest.main()
