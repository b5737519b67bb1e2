"""Made-up records of traced steps, and readers of other tools' formats written from what is known of those tools."""

import contextlib
import json
import pickletools
import re
import sqlite3

APPLICATION_ID = 0x72666C6D
# phase, scope, kind of op, kernel
OPS = [("forward", "h.0/attention/qk", "matmul", "void gemm<float, 128>(int)"),
       ("forward", "h.1/attention/qk", "matmul", "void gemm<float, 128>(int)"),
       ("forward", "loss", "cross_entropy", "softmax_kernel, \"quoted\""),
       ("backward", "h.1/attention/qk", "matmul", "void gemm<float, 64>(int)"),
       ("optimizer", "optimizer", "adamw", "adamw_kernel")]
EXTRA = {"grid": [8, 2, 1], "block": [128, 1, 1], "registers": 40, "shared_static": 1024, "shared_dynamic": 2048,
         "occupancy": 0.5, "occupancy_limit": "registers"}


def open_record(path, schema):
    record = sqlite3.connect(path)
    record.executescript(schema)
    record.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    record.execute("PRAGMA user_version = 4")
    record.executemany("INSERT INTO meta VALUES (?, ?)", [("finished_utc", "2026-01-31T12:00:00Z"),
                                                          ("epoch_utc_ns", "1795348288298241659")])
    return record


def add_program(record, device):
    record.execute("INSERT INTO run (id, label, status) VALUES (1, 'made up', 'success')")
    record.execute("INSERT INTO config VALUES (1, 'device', ?, 'text')", (device,))
    for op, (phase, scope, kind, kernel) in enumerate(OPS):
        record.execute(
            "INSERT INTO op (run, op, kind, class, kernel, name, phase, scope, dtype, shapes, matmul_flop,"
            " elementwise_flop, bytes_read, bytes_written, launches)"
            " VALUES (1, ?, ?, ?, ?, ?, ?, ?, 'fp32', '[2] -> [2]', 1000, 0, 0, 0, 1)",
            (op, kind, kind, kernel, f"t{op}", phase, scope))
    record.executemany("INSERT INTO tensor (run, tensor, name, role, dtype, shape, bytes, first_op, last_op)"
                       " VALUES (1, ?, ?, ?, 'fp32', '', ?, ?, ?)",
                       [(7, "w", "weight", 1000, -1, -1), (8, "kept", "activation", 4096, 0, 3),
                        (9, "scratch", "workspace", 600, 1, 1)])
    record.executemany("INSERT INTO memory_event (run, seq, op, tensor, bytes, live_bytes) VALUES (1, ?, ?, ?, ?, ?)",
                       [(0, -1, 7, 1000, 1000), (1, 0, 8, 4096, 5096), (2, 1, 9, 600, 5696), (3, 1, 9, -600, 5096),
                        (4, 3, 8, -4096, 1000)])


def write_gpu_record(path, schema, graph=False):
    """Two steps of five kernels on two streams. Each kernel has its call, or with `graph` all have one."""
    with contextlib.closing(open_record(path, schema)) as record, record:
        add_program(record, "cuda:0")
        record.execute("INSERT INTO environment VALUES ('device cuda:0', 'NVIDIA H100, 80 GB free', '')")
        record.execute("INSERT INTO fact (run, key, value) VALUES (1, 'multiprocessors', 4)")
        record.executemany("INSERT INTO lane VALUES (1, ?, ?, ?, ?, ?, ?)",
                           [(0, "device", "cuda:0", 7, None, "stream 7"), (1, "device", "cuda:0", 8, None, "stream 8"),
                            (2, "host", "cpu", None, 4711, "thread 4711")])
        names = {}

        def name(kind, text):
            if (kind, text) not in names:
                names[kind, text] = len(names)
                record.execute("INSERT INTO activity_name VALUES (1, ?, ?, ?)", (names[kind, text], kind, text))
            return names[kind, text]

        rows = []
        record.execute("INSERT INTO activity_extra VALUES (1, 0, ?)", (json.dumps(EXTRA),))

        def add(kind, text, lane, start, end, correlation=None, size=None, step=None, op=None, extra=None):
            rows.append((1, len(rows), name(kind, text), lane, start, end, correlation, size, step, op, extra))

        for step in (3, 4):
            begin = 1_000_000 * step
            add("range", "step", 2, begin, begin + 90_001, step=step)
            for op, (_, _, _, kernel) in enumerate(OPS):
                at = begin + 1000 + 10_000 * op
                correlation = 100 * step if graph else 100 * step + op
                if not graph or op == 0:
                    add("api", "cudaGraphLaunch" if graph else "cudaLaunchKernel_v7000", 2, at, at + 2000, correlation)
                add("kernel", kernel, op % 2, at + 3000, at + 9000 + 7 * op + step, correlation, None, step, op, 0)
            add("api", "cudaMemcpyAsync", 2, begin + 60_000, begin + 61_000, 100 * step + 50)
            add("copy", "copy host to device", 1, begin + 62_000, begin + 64_000, 100 * step + 50, 1_000_000, step)
            add("memset", "memset", 1, begin + 65_000, begin + 65_500, None, 4096, step)
            add("sync", "wait for a stream", 2, begin + 70_000, begin + 90_000)
            record.execute("INSERT INTO sample VALUES (1, ?, 'step', 90.001e-6, 'traced', 0)", (step,))
        record.executemany(f"INSERT INTO activity VALUES ({', '.join('?' * 11)})", rows)
    return path


def write_cpu_record(path, schema):
    with contextlib.closing(open_record(path, schema)) as record, record:
        add_program(record, "cpu")
        for step in (0, 1):
            record.execute("INSERT INTO sample VALUES (1, ?, 'step', 60e-6, 'observed', 0)", (step,))
            record.execute("INSERT INTO sample VALUES (1, ?, 'step', 50e-6, 'plain', 0)", (step + 10,))
            record.execute("INSERT INTO sample VALUES (1, ?, 'forward', 20e-6, 'plain', 0)", (step + 10,))
            record.executemany("INSERT INTO event VALUES (1, ?, ?, ?, ?, ?)",
                               [(step, op, 100_000 * step + 10_000 * op, 9000, 10_000) for op in range(len(OPS))])
    return path


def activities(path):
    """Kind, name, start, duration, bytes and step of all that a record holds, by start."""
    with contextlib.closing(sqlite3.connect(path)) as record:
        return sorted(record.execute(
            "SELECT n.kind, n.text, a.start_ns, a.end_ns - a.start_ns, a.bytes, a.step"
            " FROM activity AS a JOIN activity_name AS n USING (run, name)"), key=lambda row: (row[2], row[:2]))


VIEWER_OPCODES = set("PROTO FRAME EMPTY_DICT EMPTY_LIST EMPTY_TUPLE MARK SETITEM SETITEMS APPEND APPENDS LIST DICT TUPLE"
                     " TUPLE1 TUPLE2 TUPLE3 BININT BININT1 BININT2 LONG1 BINFLOAT SHORT_BINUNICODE BINUNICODE NONE NEWTRUE"
                     " NEWFALSE BINPUT LONG_BINPUT BINGET LONG_BINGET MEMOIZE STOP".split())


def check_for_memory_viz(test, data, snapshot):
    """What MemoryViz.js asks of a pickle: its opcodes, short batches, blocks that tile, frees in pairs."""
    pending = [0]
    for opcode, argument, _ in pickletools.genops(data):
        test.assertIn(opcode.name, VIEWER_OPCODES)
        if opcode.name == "LONG1":
            test.assertLess(argument, 2**53)
        if opcode.name == "MARK":
            pending.append(0)
        elif opcode.name in ("APPENDS", "SETITEMS"):
            test.assertLessEqual(pending.pop(), 2 * 1000 * 14)
    for segment in snapshot["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            test.assertEqual(block["address"], at)
            test.assertIn(block["state"], ("active_allocated", "inactive"))
            at += block["size"]
        test.assertEqual(at, segment["address"] + segment["total_size"])
    categories = {entry["category"] for trace in snapshot["device_traces"] for entry in trace if "category" in entry}
    if categories:  # the viewer adds what is missing to a list that it has not
        test.assertIn("unknown", categories)
    for trace in snapshot["device_traces"]:
        live = {}
        for entry, following in zip(trace, trace[1:] + [None]):
            for frame in entry.get("frames", []):
                test.assertEqual(set(frame), {"name", "filename", "line"})
            if entry["action"] == "snapshot":
                test.assertIsNone(following)
            elif entry["action"] == "alloc":
                for address, size in live.items():
                    test.assertTrue(entry["addr"] + entry["size"] <= address or address + size <= entry["addr"], "they overlap")
                live[entry["addr"]] = entry["size"]
            elif entry["action"] == "free_requested":
                test.assertEqual((following["action"], following["addr"]), ("free_completed", entry["addr"]))
            else:
                test.assertEqual(live.pop(entry["addr"]), entry["size"])
        held = {block["address"]: block["size"] for segment in snapshot["segments"]
                for block in segment["blocks"] if block["state"] != "inactive"}
        test.assertEqual(held, live)


def check_openmetrics(test, text):
    """The grammar: metadata before samples, names of one family together, # EOF at the end."""
    lines = text.split("\n")
    test.assertEqual(lines[-2:], ["# EOF", ""])
    family, seen = None, set()
    for line in lines[:-2]:
        metadata = re.fullmatch(r"# (TYPE|UNIT|HELP) ([a-z_:][a-z0-9_:]*) (.+)", line)
        if metadata:
            if metadata[2] != family:
                test.assertEqual(metadata[1], "TYPE")
                test.assertNotIn(metadata[2], seen)
                family = metadata[2]
                seen.add(family)
            if metadata[1] == "TYPE":
                test.assertIn(metadata[3], ("gauge", "counter"), "types of OpenMetrics that Prometheus' older text has, too")
            if metadata[1] == "UNIT":
                test.assertTrue(family.endswith("_" + metadata[3]))
            continue
        sample = re.fullmatch(r'([a-z_:][a-z0-9_:]*)\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)', line)
        test.assertTrue(sample, line)
        test.assertEqual(sample[1], family)
        float(sample[3])
