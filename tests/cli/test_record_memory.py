"""rooflm record: what PyTorch's allocator gives out in a step, from a stream and from a stand-in for torch."""
import csv
import os
import pathlib
import sys
import types
import unittest

import streams

ROOFLM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "src" / "inject" / "python"))
import rooflm_allocator  # noqa: E402
import rooflm_torch  # noqa: E402

MIB = 1 << 20
STEP = 4  # of the made-up run


def run_with_blocks():
    """A training run that tells of the blocks of one of its steps: weights and gradients from before, activations."""
    stream = streams.training_run()
    spans = {what: [] for what in range(8)}
    for row in stream.rows:
        if row[0] == streams.RANGE:
            start, end = (int.from_bytes(row[at:at + 8], "little") - stream.start_ns for at in (8, 16))
            spans[row[1]].append((start, end))
    begin, end = spans[streams.STEP][STEP]
    attention = next(start for start, stop in sorted(spans[streams.MODULE]) if start > begin and stop - start < 30_000)
    backward = next(span for span in spans[streams.PHASE] if begin < span[0] < end)
    optimizer = next(span for span in spans[streams.PHASE] if backward[1] <= span[0] < end)
    stream.block(0x1000, 64 * MIB, None)            # a weight
    stream.block(0x9000, 3 * MIB, None)             # nobody knows what
    stream.block(0x2000, -64 * MIB, begin + 10)     # the gradient of the step before
    stream.block(0x100000, 16 * MIB, attention + 10)
    stream.block(0x200000, 8 * MIB, attention + 20)
    stream.block(0x200000, -8 * MIB, attention + 30)
    stream.block(0x2000, 64 * MIB, backward[0] + 10)
    stream.block(0x100000, -16 * MIB, backward[1] - 10)
    stream.block(0x300000, 1 * MIB, optimizer[0] + 10)
    stream.block(0x300000, -1 * MIB, optimizer[0] + 20)
    stream.facts.update({"end cuda:0 4096": "weight b.0.a.weight", "begin cuda:0 8192": "gradient b.0.a.weight.grad",
                         "end cuda:0 8200": "gradient b.0.a.weight.grad"})
    for step, (_, ended) in enumerate(spans[streams.STEP]):
        stream.row(streams.MARK, "torch_allocated_bytes", ended, ended, stream.process, what=streams.AMOUNT, size=100 * MIB + step)
        stream.row(streams.MARK, "torch_reserved_bytes", ended, ended, stream.process, what=streams.AMOUNT, size=128 * MIB)
    # What the allocator, or a library, takes from the device.
    stream.row(streams.MEMORY, "allocate device memory", 10, 10, stream.process, size=128 * MIB, other=0x1000)
    return stream


class Memory(streams.Case):
    binary = ROOFLM

    def table(self, view, number=0):
        text = self.rooflm("report", "x.rooflm", "--view", view, "--format", "csv").stdout
        tables = text.split("\n\n")
        lines = tables[number].splitlines()
        return list(csv.DictReader(lines[1:] if len(tables) > 1 else lines))  # of several the first line is the title

    def test_blocks_are_tensors_of_modules(self):
        self.import_stream(run_with_blocks())
        tensors = self.rows("SELECT role, name, bytes / 1048576 FROM tensor ORDER BY tensor")
        self.assertEqual(sorted(tensors), sorted([
            ("weight", "b.0.a.weight", 64), ("other", "other", 3), ("gradient", "b.0.a.weight.grad", 64),
            ("activation", "b.0.a (forward)", 16), ("workspace", "b.0.a (forward)", 8),
            ("gradient", "b.0.a.weight.grad", 64), ("workspace", "optimizer (optimizer)", 1)]))
        phases = {row["phase"]: row for row in self.table("memory")}
        self.assertEqual(int(phases["persistent"]["live_bytes"]), 131 * MIB)
        self.assertEqual(int(phases["forward"]["live_bytes"]), 91 * MIB)
        self.assertEqual(int(phases["forward"]["activation"]), 16 * MIB)
        self.assertEqual(int(phases["backward"]["live_bytes"]), 147 * MIB)
        holders = self.table("memory", 1)
        self.assertEqual({row["tensor"] for row in holders}, {"b.0.a.weight", "b.0.a.weight.grad", "other", "b.0.a (forward)"})
        saved = self.table("saved")
        self.assertEqual([(row["block"], int(row["bytes"])) for row in saved], [("a", 16 * MIB)])

    def test_steps_have_what_is_allocated_and_reserved(self):
        self.import_stream(run_with_blocks())
        by_step = self.table("memory", 2)
        self.assertEqual([int(row["allocated"]) for row in by_step], [100 * MIB + step for step in range(8)])
        self.assertEqual({int(row["reserved"]) for row in by_step}, {128 * MIB})
        self.assertEqual(self.rows("SELECT value FROM gauge WHERE name = 'taken_bytes'"), [(128.0 * MIB,)])

    def test_without_steps_blocks_are_amounts(self):
        stream = run_with_blocks()
        stream.rows = [row for row in stream.rows if row[0] == streams.MEMORY]
        self.import_stream(stream)
        self.assertEqual(self.rows("SELECT COUNT(*) FROM tensor"), [(0,)])
        self.assertEqual(self.rows("SELECT COUNT(*) FROM memory_event WHERE op IS NOT NULL"), [(0,)])

    def test_blocks_with_lies_in_them(self):
        stream = run_with_blocks()
        stream.block(2**63 + 5, 4096, 10)
        stream.block(0x100000, 2**62, 2_000_000)
        stream.block(0x700000, -4096, 2_000_000)
        stream.facts.update({"begin cuda:0": "x", "end cuda:0 many": "weight w", "begin  9": "gradient"})
        self.import_stream(stream)


class FakeCuda:
    """As much of torch.cuda as the allocator's reader touches."""

    def __init__(self, snapshot):
        self.snapshot, self.asked = snapshot, []
        self.memory = types.SimpleNamespace(_record_memory_history=lambda **how: self.asked.append(how),
                                            _snapshot=lambda: self.snapshot,
                                            memory_stats_as_nested_dict=self.stats)

    def is_initialized(self):
        return True

    def device_count(self):
        return 2

    def stats(self, device):
        return {f"{what}_bytes": {"all": {"current": 0 if device else size}} for what, size in (("allocated", 5), ("reserved", 8))}


class FakeLibrary:
    def __init__(self):
        self.blocks, self.amounts, self.facts, self.ranges, self.open = [], [], {}, [], 0

    def text(self, text):
        return text.decode()

    def push(self, *named):
        self.ranges.append(named)
        self.open += 1

    def pop(self):
        self.open -= 1

    def block(self, *block):
        self.blocks.append(block)

    def amount(self, *amount):
        self.amounts.append(amount)

    def fact(self, key, value):
        self.facts[key.decode()] = value.decode()


class Reader(unittest.TestCase):
    def setUp(self):
        entry = {"stream": 0, "frames": []}
        self.snapshot = {
            "device_traces": [[{"action": "alloc", "addr": 100, "size": 10, "time_us": 5, **entry},
                               {"action": "free_requested", "addr": 100, "size": 10, "time_us": 6, **entry},
                               {"action": "free_completed", "addr": 100, "size": 10, "time_us": 6, **entry},
                               {"action": "alloc", "addr": 300, "size": 7, "time_us": 7, **entry}], []],
            "segments": [{"device": 0, "address": 100, "blocks": [{"size": 100, "state": "inactive"},
                                                                  {"size": 100, "state": "active_allocated"},
                                                                  {"size": 7, "state": "active_allocated"}]}]}
        self.library, self.cuda = FakeLibrary(), FakeCuda(self.snapshot)
        self.allocator = rooflm_allocator.Allocator(types.SimpleNamespace(cuda=self.cuda), self.library)

    def test_a_step_is_handed_over(self):
        tensor = types.SimpleNamespace(is_cuda=True, device=types.SimpleNamespace(index=None), data_ptr=lambda: 200)
        self.allocator.begin_step(lambda: [(tensor, "gradient", "w.grad")])
        self.allocator.end_step(lambda: [(tensor, "weight", "w")])
        self.assertEqual([how["enabled"] for how in self.cuda.asked], ["all", None])
        self.assertIsNone(self.cuda.asked[0]["context"])  # no stacks
        blocks = self.library.blocks
        self.assertEqual([block[:3] for block in blocks], [(0, 100, 10), (0, 100, -10), (0, 300, 7), (0, 200, 100)])
        self.assertEqual((blocks[1][3] - blocks[0][3], blocks[3][3]), (1000, 0))
        self.assertEqual(self.library.facts, {"begin cuda:0 200": "gradient w.grad", "end cuda:0 200": "weight w"})
        self.assertEqual(self.library.amounts, [("torch_allocated_bytes", 0, 5), ("torch_reserved_bytes", 0, 8)])
        self.allocator.end_step(list)
        self.assertEqual(len(self.library.blocks), len(blocks))
        self.assertEqual(len(self.library.amounts), 4)

    def test_a_step_that_is_timed_alone_is_not_asked_for_sums(self):
        recorded = iter([1, 0, 0, 1])
        self.library.end_step = lambda: next(recorded)
        del self.cuda.memory._record_memory_history
        marks = rooflm_torch.Marks(types.SimpleNamespace(cuda=self.cuda), self.library)
        counts = []
        for _ in range(4):
            marks.end_step()
            counts.append(len(self.library.amounts) // 2)
        self.assertEqual(counts, [1, 2, 2, 2])
        # Nor has it a range for what the recorder does after it.
        self.assertEqual((self.library.ranges, self.library.open), (2 * [("rooflm between steps", 13)], 0))

    def test_a_history_of_the_program_is_left_alone(self):
        self.cuda.memory._record_memory_history(max_entries=1)
        self.allocator.begin_step(list)
        self.allocator.end_step(list)
        self.assertEqual((self.cuda.asked, self.library.blocks), ([{"max_entries": 1}], []))

    def test_a_torch_without_history_goes_on(self):
        self.allocator.record = lambda **how: (_ for _ in ()).throw(TypeError("enabled"))
        self.allocator.begin_step(list)
        self.allocator.end_step(list)
        self.assertIn("TypeError", self.library.facts["no allocator"])

    def test_owners_are_named(self):
        parameter = types.SimpleNamespace(grad="gradient")
        other = types.SimpleNamespace(grad=None)
        root = types.SimpleNamespace(named_parameters=lambda: [("a.weight", parameter)], named_buffers=lambda: [("mask", "m")])
        moment = types.SimpleNamespace(data_ptr=lambda: 1)

        class State(dict):
            def get(self, one, default):
                return {"exp_avg": moment, "step": 3} if one is parameter else default
        optimizer = types.SimpleNamespace(param_groups=[{"params": [parameter, other]}], state=State())
        self.assertEqual(list(rooflm_allocator.find_owners([optimizer], [root])),
                         [("m", "buffer", "mask"), (parameter, "weight", "a.weight"), ("gradient", "gradient", "a.weight.grad"),
                          (moment, "optimizer_state", "a.weight.exp_avg"), (other, "weight", "parameter")])


if __name__ == "__main__":
    unittest.main()
