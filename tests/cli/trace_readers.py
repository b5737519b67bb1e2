"""Strict readers of exported traces, written from what is known of the programs that open them. Each takes the fields that its
program takes, fails where that would, warn or count twice, and returns the figures that it would show."""

import collections
import contextlib
import json
import sqlite3

# Bytes of an element, by the names that TraceLens knows.
TRACELENS_BYTES = {"Float": 4, "Int": 4, "Long": 8, "BFloat16": 2, "Bool": 1, "Byte": 1, "Double": 8, "Half": 2, "Short": 2}
TRACELENS_COLLECTIVES = {"allreduce", "allreduce_coalesced", "reducescatter", "_reduce_scatter_base", "allgather", "all_gather",
                         "_allgather_base", "all_to_all", "all_to_allv"}
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")


def slices_of(path):
    """Slices with times in whole nanoseconds."""
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    slices = [event for event in events if event.get("ph") == "X"]
    for event in slices:
        event["start"], event["length"] = round(1000 * event["ts"]), round(1000 * event["dur"])
    return events, slices


def read_as_hta(test, path):
    """Holistic Trace Analysis: what has a stream and a correlation is a kernel; a kernel is of the step that its call is in."""
    _, slices = slices_of(path)
    calls, kernels = {}, []
    for event in slices:
        args = event["args"]
        if "correlation" not in args:
            continue
        if "stream" in args:
            test.assertIn(event["cat"], DEVICE, "what is no work of a device would be counted as a kernel")
            kernels.append(event)
        else:
            calls.setdefault(args["correlation"], event)
    steps = [event for event in slices if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation"]
    numbers = [int(event["name"].split("#")[1]) for event in steps]
    test.assertEqual(len(numbers), len(set(numbers)), "a step stands twice")
    of_step = collections.Counter()
    for kernel in kernels:
        call = calls.get(kernel["args"]["correlation"])
        for number, step in zip(numbers, steps):
            if call is not None and step["start"] <= call["start"] < step["start"] + step["length"]:
                of_step[number] += kernel["cat"] == "kernel"
    named = [event for event in kernels if event["cat"] == "kernel"]
    return {"kernels": len(named), "kernel_ns": sum(event["length"] for event in named), "kernels_of_step": dict(of_step),
            "nccl_ns": sum(event["length"] for event in named if event["name"].startswith("nccl"))}


def read_as_tensorboard(test, path):
    """The PyTorch Profiler plugin of TensorBoard: calls belong to the op with their External id, kernels to their call. Returns the
    device's time by the innermost op."""
    _, slices = slices_of(path)
    ops = {}
    for event in slices:
        if event["cat"] == "cpu_op" or (event["cat"] == "user_annotation" and event["name"].startswith("ProfilerStep#")):
            test.assertNotIn(event["args"]["External id"], ops, "an External id stands for two ops")
            ops[event["args"]["External id"]] = event
    calls = {}
    for event in slices:
        if event["cat"] in CALLS:
            number = event["args"]["External id"]
            if number != 0:
                test.assertIn(number, ops, "a call with an External id that no op has")
                test.assertTrue(ops[number]["start"] <= event["start"] < ops[number]["start"] + max(1, ops[number]["length"]))
                test.assertEqual((ops[number]["pid"], ops[number]["tid"] % 100_000_000), (event["pid"], event["tid"] % 100_000_000))
            if "correlation" in event["args"]:
                calls.setdefault(event["args"]["correlation"], event)
    times = collections.Counter()
    for event in slices:
        if event["cat"] not in DEVICE or "correlation" not in event["args"]:
            continue
        call = calls.get(event["args"]["correlation"])
        if call is None:
            continue
        test.assertEqual(event["args"]["External id"], call["args"]["External id"], "call and kernel name different ops")
        op = ops.get(event["args"]["External id"])
        times[op["name"] if op else "none"] += event["length"]
    return dict(times)


def read_as_tracelens(test, path):
    """TraceLens: arrows by the correlation of the call, and what collectives moved. Returns (name, MB in, MB out, ranks) of each."""
    events, slices = slices_of(path)
    starts, ends = {}, {}
    for event in events:
        if event.get("cat") == "ac2g":
            side = {"s": starts, "f": ends}[event["ph"]]
            test.assertNotIn(event["id"], side, "an arrow that begins or ends twice")
            side[event["id"]] = event
    test.assertEqual(starts.keys(), ends.keys())
    at = {(event["pid"], event["tid"], event["start"]) for event in slices}
    for event in [*starts.values(), *ends.values()]:
        test.assertIn((event["pid"], event["tid"], round(1000 * event["ts"])), at, "an arrow that no slice has")
    calls = {event["args"]["correlation"] for event in slices if event["cat"] in CALLS and "correlation" in event["args"]}
    moved = []
    for event in slices:
        args = event["args"]
        if event["cat"] not in DEVICE:
            continue
        if args.get("correlation") in calls:
            test.assertIn(args["correlation"], ends)
        if event["cat"] != "kernel" or "Collective name" not in args:
            continue
        test.assertIn(args["Collective name"], TRACELENS_COLLECTIVES)
        test.assertIsInstance(args["Process Group Name"], str)
        size = TRACELENS_BYTES[args["dtype"]] / 1024**2
        moved.append((args["Collective name"], args["In msg nelems"] * size, args["Out msg nelems"] * size, args["Group size"]))
    return moved


def read_as_nsys(path):
    """What the stats scripts and recipes of nsys ask for. Returns kernels, their time, and the name of the device of each."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        return database.execute("""
            SELECT COUNT(*), SUM(k.end - k.start), GROUP_CONCAT(DISTINCT g.name) FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
            JOIN StringIds AS s ON s.id = k.demangledName JOIN StringIds AS t ON t.id = k.shortName
            JOIN TARGET_INFO_CUDA_DEVICE AS d ON d.cudaId = k.deviceId AND d.pid = (k.globalPid >> 24 & 0xFFFFFF)
            JOIN TARGET_INFO_GPU AS g ON g.id = d.gpuId AND d.numMultiprocessors = g.smCount
            WHERE g.totalMemory IS NULL OR g.totalMemory > 0""").fetchone()
