"""Streams as the injection library writes them (src/inject/stream_format.h), for tests of what reads them."""
import json
import pathlib
import sqlite3
import struct
import subprocess
import tempfile
import unittest

KERNEL, COPY, MEMSET, SYNC, API, OVERHEAD, MEMORY, RANGE, MARK = range(1, 10)
USER, STEP, PHASE, MODULE, GRADIENT, STACK, ADDRESSES, AMOUNT, BLOCK, COLLECTIVE, FRAMES, WAITING, OPERATOR, RECORDER = range(14)
HEADER, ROW = 512, 56
EXTRA = '{"grid":[8,1,1],"block":[256,1,1],"registers":32,"shared_static":0,"shared_dynamic":0,"local":0}'


class Case(unittest.TestCase):
    """Commands of `binary`, which each test's module sets, in a folder of their own, where they write x.rooflm."""
    binary = ""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def rooflm(self, *arguments, **more):
        return subprocess.run([self.binary, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=60,
                              check=False, **more)

    def rows(self, query, name="x.rooflm"):
        database = sqlite3.connect(self.folder / name)
        self.addCleanup(database.close)
        return database.execute(query).fetchall()

    def import_stream(self, stream):
        """What import said; the record holds."""
        (self.folder / "a.stream").write_bytes(stream.bytes())
        done = self.rooflm("import", "a.stream", "-o", "x.rooflm", "--overwrite")
        self.assertEqual(done.returncode, 0, done.stderr)
        verified = self.rooflm("verify", "x.rooflm")
        self.assertEqual(verified.returncode, 0, verified.stdout)
        return done.stderr


class Stream:
    """Rows of one process, whose number and main thread are `process`."""

    def __init__(self, process=100, start_ns=10**12, ended=True, problem="", dropped=0, version=3):
        self.version = version
        self.process, self.start_ns, self.ended = process, start_ns, ended
        self.problem, self.dropped, self.odd_pops = problem, dropped, 0
        self.numbers, self.rows, self.facts, self.correlation = {}, [], {"command": "python3 train.py"}, 0

    def text(self, text):
        return self.numbers.setdefault(text, len(self.numbers) + 1)

    def row(self, kind, name, start, end, place, correlation=0, what=USER, size=0, other=0, extra="", node=None,
            device=0):
        """Times count from the start of the process, in ns."""
        self.rows.append(struct.pack("<BBHIQQIIIIqQ", kind, what, device, self.text(name),
                                     (self.start_ns + start) % 2**64, (self.start_ns + end) % 2**64, place, correlation,
                                     self.text(extra) if extra else 0, 0 if node is None else 1, size,
                                     other if node is None else node))

    def launch(self, name, call_ns, start, end, thread=None, stream=7):
        """A kernel and the call that started it, and the driver's call within."""
        self.correlation += 1
        thread = self.process if thread is None else thread
        self.row(API, "cudaLaunchKernel", call_ns, call_ns + 4000, thread, self.correlation)
        self.row(API, "cuLaunchKernel", call_ns + 500, call_ns + 3000, thread, self.correlation)
        self.row(KERNEL, name, start, end, stream, self.correlation, extra=EXTRA)

    def operator_range(self, number, kernels, step):
        """A call of an operator around those that launched the kernels of these names in that step."""
        steps = [struct.unpack_from("<QQ", row, 8) for row in self.rows if row[0] == RANGE and row[1] == STEP]
        calls = {struct.unpack_from("<I", row, 28)[0]: struct.unpack_from("<QQI", row, 8) for row in reversed(self.rows)
                 if row[0] == API}
        for row in list(self.rows):
            name, correlation = struct.unpack_from("<I", row, 4)[0], struct.unpack_from("<I", row, 28)[0]
            if row[0] != KERNEL or name not in {self.numbers[kernel] for kernel in kernels}:
                continue
            start, end, thread = calls[correlation]
            if steps[step][0] <= start <= steps[step][1]:
                self.rows.append(struct.pack("<BBHIQQIIIIqQ", RANGE, OPERATOR, 0, number, start - 100, end + 100, thread,
                                             0, 0, 0, 0, 0))

    def capture(self, name, call_ns, thread=None):
        """A call that a capture turns into a node: nothing runs."""
        self.correlation += 1
        self.row(API, name, call_ns, call_ns + 400, self.process if thread is None else thread, self.correlation)

    def replay(self, call_ns, nodes, graph=7, stream=7):
        """A graph, whose nodes are (number, kind, name, start, end)."""
        self.correlation += 1
        self.row(API, "cudaGraphLaunch", call_ns, call_ns + 4000, self.process, self.correlation)
        for number, kind, name, start, end in nodes:
            self.row(kind, name, start, end, stream, self.correlation, node=graph << 32 | number)

    def block(self, address, size, time):
        """Of PyTorch's allocator; None: it was there before."""
        start = -self.start_ns if time is None else time
        self.row(MEMORY, "block taken" if size > 0 else "block given back", start, start, self.process, what=BLOCK, size=size,
                 other=address)

    def bytes(self):
        header = struct.pack("<8sIIQQQQQIIQ440s", b"rflstrm%d" % self.version, self.process, 1, self.start_ns,
                             1_700_000_000 * 10**9, len(self.rows), self.dropped, 0, int(self.ended), 1,
                             self.odd_pops, self.problem.encode())
        assert len(header) == HEADER

        def chunk(kind, data):
            return struct.pack("<4sIQ", b"CHNK", kind, len(data)) + data

        texts = b"".join(struct.pack("<II", number, len(text.encode())) + text.encode()
                         for text, number in self.numbers.items())
        facts = b"".join(struct.pack("<II", len(key.encode()), len(value.encode())) + key.encode() + value.encode()
                         for key, value in self.facts.items())
        return header + chunk(1, texts) + chunk(3, facts) + chunk(2, b"".join(self.rows))


def read(data):
    """Rows (kind, what, text, start, end, place) and facts of a stream, in the order in which they were written."""
    texts, rows, facts, at = {}, [], {}, HEADER
    while at + 16 <= len(data):
        mark, kind, size = struct.unpack_from("<4sIQ", data, at)
        assert mark == b"CHNK"
        chunk = data[at + 16:at + 16 + size]
        at += 16 + size
        place = 0
        while kind == 1 and place < len(chunk):
            number, length = struct.unpack_from("<II", chunk, place)
            texts[number] = chunk[place + 8:place + 8 + length].decode()
            place += 8 + length
        while kind == 3 and place < len(chunk):
            key, value = struct.unpack_from("<II", chunk, place)
            facts[chunk[place + 8:place + 8 + key].decode()] = chunk[place + 8 + key:place + 8 + key + value].decode()
            place += 8 + key + value
        if kind == 2:
            rows += [struct.unpack_from("<BBHIQQI", chunk, place) for place in range(0, len(chunk), ROW)]
    return [(kind, what, texts.get(name, ""), start, end, place) for kind, what, _, name, start, end, place in rows], facts


def operator(op, phase, module, inputs, outputs, count=1, **more):
    """A note of the recorder's Python module: calls of an operator in one step."""
    return json.dumps({"op": op, "phase": phase, "module": module, "n": count, "in": inputs, "out": outputs, **more})


def training_run(steps=8, layers=2, slow_first=True, every=1, extra=None, timed=(), timed_us=100, **header):
    """A step of PyTorch: modules forward on the main thread, gradients on another, one optimizer. Modules are marked in
    the first two steps and in each that `every` divides; `extra(step)` names a kernel that only this step has; of the
    steps `timed` nothing of the device is recorded, and they are shorter."""
    stream = Stream(**header)
    autograd = stream.process + 1
    stream.facts["torch"] = "2.11"
    for layer in range(layers):
        for part, kind in (("", "Block"), (".a", "Attn"), (".m", "Mlp")):
            stream.facts[f"module b.{layer}{part}"] = kind
    stream.facts["module head"] = "Linear"
    now, micro = 1_000_000, 1000
    for step in range(steps):
        if step in timed:
            stream.row(RANGE, "step, timed alone", now, now + timed_us * micro, stream.process, what=STEP)
            now += 101 * micro
            continue
        marked = step < 2 or step % every == 0
        begin, each = now, (60 if slow_first and step == 0 else 12) * micro
        device = now

        def kernel(name, thread):
            nonlocal now, device
            device = max(device, now + 6000)
            stream.launch(name, now, device, device + each // 2, thread)
            device += each // 2
            now += each

        def module(path, names):
            nonlocal now
            opened = now
            now += 500
            for name in names:
                kernel(name, stream.process) if isinstance(name, str) else module(*name)
            now += 500
            if marked:
                stream.row(RANGE, path, opened, now, stream.process, what=MODULE)

        for layer in range(layers):
            module(f"b.{layer}", [(f"b.{layer}.a", ["gemm_a", "softmax"]), (f"b.{layer}.m", ["gemm_m"]), "residual"])
        module("head", ["gemm_head"])
        if extra and extra(step):
            kernel(extra(step), stream.process)
        kernel("loss", stream.process)
        opened = now
        for path, name in [("head", "gemm_head_back")] + [
                (f"b.{layer}{part}", f"back{part}") for layer in reversed(range(layers)) for part in ("", ".m", ".a")]:
            if marked:
                stream.row(MARK, path, now, now, autograd, what=GRADIENT)
            kernel(name, autograd)
        now += micro
        stream.row(RANGE, "backward", opened, now, stream.process, what=PHASE)
        opened = now
        kernel("adam", stream.process)
        stream.row(RANGE, "optimizer", opened, now, stream.process, what=PHASE)
        now = max(now, device + micro)
        stream.row(RANGE, "step", begin, now, stream.process, what=STEP)
        now += micro
    return stream
