"""rooflm import of streams with lies in them: whatever is wrong is left out or counted, and the record of the rest holds.

Usage: test_record_lies.py BINARY [unittest options]"""
import concurrent.futures
import os
import random
import struct
import sys
import unittest

import streams

ROOFLM = os.path.abspath(sys.argv.pop(1))
MUTATIONS = 300
# Where the fields of a row and of the header are, and how long.
FIELDS = [(0, 1), (1, 1), (2, 2), (4, 4), (8, 8), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4), (40, 8), (48, 8)]
HEADER = [(12, 4), (16, 8), (24, 8), (32, 8), (40, 8), (48, 8), (56, 4), (60, 4), (64, 8)]
VALUES = [0, 1, 2, 3, 5, 7, 0x7F, 0x80, 0xFF, 0xFFFF, 2**31 - 1, 2**32 - 1, 2**52, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


def training():
    return streams.training_run(steps=5)


def with_blocks():
    """PyTorch's allocator: what was there before, and what a step takes and gives back."""
    stream = streams.training_run(steps=5)
    stream.block(4096, 1 << 26, None)
    stream.block(1 << 20, 1 << 16, None)
    for time, address, size in ((1_000_600, 8192, 512), (1_001_000, 16384, 1024), (1_002_000, 8192, -512), (1_003_000, 1 << 20, -(1 << 16))):
        stream.block(address, size, time)
    return stream


def with_timed_steps():
    return streams.training_run(steps=20, timed=range(8, 16))


def mutate(data, chance):
    """Bytes with one field, or some, that are not what they were: another row's, near, or one that is known to hurt."""
    data = bytearray(data)
    rows = rows_of(data)
    for _ in range(chance.choice((1, 1, 2, 5, 30))):
        if chance.random() < 0.1:
            (at, size), base = chance.choice(HEADER), 0
        else:
            (at, size), base = chance.choice(FIELDS), chance.choice(rows)
        old = int.from_bytes(data[base + at:base + at + size], "little")
        other = chance.choice(rows)
        new = chance.choice((chance.choice(VALUES), int.from_bytes(data[other + at:other + at + size], "little"),
                             old + chance.choice((-10**9, -10**6, -1000, -1, 1, 1000, 10**6, 10**9))))
        if at in (8, 16) and chance.random() < 0.3:  # no duration, or nearly none
            new = int.from_bytes(data[base + 24 - at:base + 32 - at], "little") + chance.choice((-1, 0, 1))
        data[base + at:base + at + size] = (new % 2**(8 * size)).to_bytes(size, "little")
    return bytes(data)


def text_of(stream, row):
    number = struct.unpack_from("<I", row, 4)[0]
    return next(text for text, known in stream.numbers.items() if known == number)


def rows_of(data):
    """Where each row begins."""
    at, rows = streams.HEADER, []
    while at + 16 <= len(data):
        _, kind, size = struct.unpack_from("<4sIQ", data, at)
        if kind == 2:
            rows += range(at + 16, at + 16 + size, streams.ROW)
        at += 16 + size
    return rows


class Lies(streams.Case):
    binary = ROOFLM

    def attempt(self, number, good):
        """What is wrong with how one lie is taken; "" when nothing is."""
        file, record = self.folder / f"{number}.stream", f"{number}.rooflm"
        file.write_bytes(mutate(good, random.Random(number)))
        done = self.rooflm("import", file.name, "-o", record)
        if done.returncode not in (0, 3):
            return f"{number}: exit code {done.returncode}: {done.stderr}"
        if done.returncode == 0:
            verified = self.rooflm("verify", record)
            if verified.returncode != 0:
                return f"{number}: {done.stderr}{verified.stdout}"
        return ""

    def test_records_of_mutated_streams_hold(self):
        seeds = [make().bytes() for make in (training, with_blocks, with_timed_steps)]
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            faults = list(pool.map(lambda number: self.attempt(number, seeds[number % len(seeds)]), range(MUTATIONS)))
        self.assertEqual([fault for fault in faults if fault], [])

    def longer_last_step(self):
        """A run whose last step goes on for 100 us without work, and when its last kernel ended."""
        stream = training()
        at = max(i for i, row in enumerate(stream.rows) if row[0] == streams.RANGE and row[1] == streams.STEP)
        row = list(struct.unpack("<BBHIQQIIIIqQ", stream.rows[at]))
        row[5] += 100_000
        stream.rows[at] = struct.pack("<BBHIQQIIIIqQ", *row)
        return stream, max(struct.unpack_from("<BBHIQQ", row)[5] for row in stream.rows if row[0] == streams.KERNEL) - stream.start_ns

    def test_work_that_took_no_time_ends_no_phase(self):
        stream, end = self.longer_last_step()
        stream.row(streams.MEMSET, "memset", end + 90_000, end + 90_000, 7, size=64)
        stream.launch("adam", end + 50_000, end + 95_000, end + 95_000)
        self.import_stream(stream)

    def test_an_op_begins_with_its_first_kernel_even_if_that_took_no_time(self):
        stream = training()
        self.import_stream(stream)
        begins = self.rows("SELECT step, op, start_ns FROM event")
        for i, row in enumerate(stream.rows):
            if row[0] == streams.KERNEL and text_of(stream, row) == "gemm_a":
                fields = list(struct.unpack("<BBHIQQIIIIqQ", row))
                fields[5] = fields[4]
                stream.rows[i] = struct.pack("<BBHIQQIIIIqQ", *fields)
        self.import_stream(stream)
        self.assertEqual(self.rows("SELECT step, op, start_ns FROM event"), begins)

    def test_work_without_a_call_counts_in_the_phase_beside_it(self):
        stream, end = self.longer_last_step()
        stream.row(streams.KERNEL, "unseen", end + 50_000, end + 50_300, 7, correlation=777_777, extra=streams.EXTRA)
        said = self.import_stream(stream)
        self.assertIn("1 kernels and copies have a correlation that no call has (they are kept)", said)

    def test_kernels_beside_each_other_take_longer_together_than_their_phase(self):
        stream = training()
        kernels = [struct.unpack_from("<BBHIQQIIIIqQ", row) for row in stream.rows if row[0] == streams.KERNEL]
        for kernel in kernels:  # three more on other streams, of the same call
            stream.rows += [struct.pack("<BBHIQQIIIIqQ", *kernel[:6], other, *kernel[7:]) for other in (8, 9, 10)]
        self.import_stream(stream)

    def test_ranges_that_the_program_calls_step_are_none_beside_those_of_the_recorder(self):
        stream = with_timed_steps()
        for row in list(stream.rows):
            kind, what, _, name, start, end, *_ = struct.unpack_from("<BBHIQQ", row)
            if kind == streams.RANGE and what == streams.STEP:
                middle = (start + end) // 2 - stream.start_ns
                stream.row(streams.RANGE, "step", middle, middle + 20_000, stream.process)
        said = self.import_stream(stream)
        self.assertIn("20 steps", said)
        self.assertIn("8 of the steps were only timed", said)
        self.assertEqual(self.rows("SELECT COUNT(*), COUNT(DISTINCT step), MAX(step) FROM sample WHERE phase = 'step'"), [(20, 20, 19)])

    def test_a_step_without_a_duration_is_left_out(self):
        stream = training()
        now = 10**9
        stream.row(streams.RANGE, "step", now, now, stream.process, what=streams.STEP)
        stream.row(streams.RANGE, "step, timed alone", now + 5, now + 5, stream.process, what=streams.STEP)
        said = self.import_stream(stream)
        self.assertIn("5 steps", said)
        self.assertIn("2 steps without a duration were left out", said)

    def test_blocks_that_are_taken_or_given_back_twice(self):
        stream = with_blocks()
        stream.block(4096, 1 << 20, None)
        for time in (1_004_000, 1_005_000):
            stream.block(8192, -512, time)
        said = self.import_stream(stream)
        self.assertIn("1 blocks from before the trace are listed twice at one address: the second was left out", said)
        self.assertIn("2 frees of memory that was already free: its allocation was not seen and is placed right before the free", said)
        self.assertEqual(self.rows("SELECT SUM(bytes) FROM memory_event"), [((1 << 26) + 1024,)])

    def test_impossible_times_of_collectives_and_of_the_beginning(self):
        stream = training()
        stream.row(streams.RANGE, "AllReduce", 2**63 - stream.start_ns, 2**63 - stream.start_ns, stream.process, what=streams.COLLECTIVE,
                   size=512)
        self.import_stream(stream)
        late = training()
        data = bytearray(late.bytes())
        struct.pack_into("<QQ", data, 16, 2**63, 2**64 - 1)
        (self.folder / "a.stream").write_bytes(data)
        done = self.rooflm("import", "a.stream", "-o", "x.rooflm", "--overwrite")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 impossible times of the stream's beginning count as 0", done.stderr)
        self.assertEqual(self.rooflm("verify", "x.rooflm").returncode, 0)


if __name__ == "__main__":
    unittest.main()
