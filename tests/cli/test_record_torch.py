"""rooflm record: the marks of PyTorch, on stand-ins for what its versions have, and on a real one where Python has it."""
import contextlib
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import unittest

import streams
from fake_torch import TORCH, TRAINING, write_torch

ROOFLM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
GRAPHS = """
        def is_initialized(): return False
        class CUDAGraph:
            def capture_begin(self, pool=None): pass
            def capture_end(self): pass
            def replay(self): pass
        """
# An allocator that gives out one block in each step and keeps a history while it is asked for one.
ALLOCATOR = """
        import time, types
        entries, is_kept = [], False
        def is_initialized(): return True
        def device_count(): return 1
        def get_device_name(device): return "stand-in"
        def max_memory_allocated(device): return 7
        def max_memory_reserved(device): return 9
        def allocate(size):
            if is_kept: entries.append({"action": "alloc", "addr": 4096 + size, "size": size, "time_us": time.time_ns() // 1000})
        def _record_memory_history(enabled="all", **how):
            global is_kept
            is_kept = enabled == "all"
        def stats(device):
            return {what + "_bytes": {"all": {"current": size}} for what, size in (("allocated", 5), ("reserved", 8))}
        memory = types.SimpleNamespace(_record_memory_history=_record_memory_history, memory_stats_as_nested_dict=stats,
                                       _snapshot=lambda: {"device_traces": [entries], "segments": []})
        """
# A step is captured once and replayed; optimizers run while it is captured.
CAPTURED = TRAINING.split("for step in range(5):")[0] + """
def step():
    nodes.clear()
    model(torch.Tensor())
    torch.autograd.backward(list(reversed(nodes)))
    optimizer.step()
step()
graph, other = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
graph.capture_begin(pool=3)
step()
graph.capture_end()
other.capture_begin()
other.capture_end()
for _ in range(4):
    graph.replay()
    other.replay()
"""
# Before 2.1 the engine is an object, before 2.0 optimizers have no hooks.
OLD = {
    "autograd/__init__.py": """
        class Engine:
            def run_backward(self, nodes, keep=False):
                for node in nodes:
                    for hook in node.hooks: hook(None)
            def is_checkpoint_valid(self): return True
        class Variable:
            _execution_engine = Engine()
        def backward(nodes):
            assert Variable._execution_engine.is_checkpoint_valid()
            Variable._execution_engine.run_backward(nodes, keep=True)
        """,
    "optim/optimizer.py": """
        import functools
        class Base:
            def _hook_for_profile(self):
                if getattr(type(self).step, "hooked", None): return
                run = type(self).step
                @functools.wraps(run)
                def step(*values): return run(*values)
                step.hooked = True
                type(self).step = step
        class Optimizer(Base):
            def __init__(self): self._hook_for_profile()
            def step(self, closure=None): return closure() if closure else "stepped"
        """,
    "__init__.py": TORCH["__init__.py"].replace("autograd, compiler, cuda", "autograd, cuda"),
}
KEYWORDS = """
import torch
class Output(dict): pass
class Leaf(torch.nn.Module):
    def forward(self, *, x): return Output(loss=torch.Tensor(torch.Node()))
leaf, optimizer = Leaf(), torch.optim.optimizer.Optimizer()
given = torch.Tensor(torch.Node())
output = leaf(x=given)
assert len(output["loss"].grad_fn.hooks) == 1 and len(given.grad_fn.hooks) == 1
torch.autograd.backward([output["loss"].grad_fn, given.grad_fn])
optimizer.step()
"""
COMPILED = """
import sys, types
import torch
class CompiledFxGraph:
    fx_graph_cache_key = "fabc"
    def __call__(self, values): return sum(values)
sys.modules["torch._inductor.output_code"] = types.SimpleNamespace(CompiledFxGraph=CompiledFxGraph)
graph, leaf, optimizer = CompiledFxGraph(), torch.nn.Module(), torch.optim.optimizer.Optimizer()
leaf.forward = lambda x: torch.Tensor()
torch.compile(leaf)
for step in range(5):
    leaf(torch.Tensor())
    assert graph([1, 2]) == 3
    optimizer.step()
"""


class Marks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_marked(self, *command, python=sys.executable, **changed):
        """Rows and facts of a program that is marked; without the recorder, which would take the stream away."""
        site = self.folder / "site"
        if changed or python == sys.executable:
            write_torch(site, **changed)
        streams_folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        library = ROOFLM.parent / "librooflm_inject.so"
        environment = {**os.environ, "CUDA_INJECTION64_PATH": str(library), "ROOFLM_RECORD_FOLDER": str(streams_folder),
                       "ROOFLM_RECORD_TORCH": "on", "PYTHONPATH": f"{ROOT / 'src' / 'inject' / 'python'}:{site}",
                       "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([python, *command], env=environment, cwd=self.folder, capture_output=True, text=True, timeout=120,
                              check=False)
        self.assertEqual((done.returncode, "Traceback" in done.stderr, "not marked" in done.stderr), (0, False, False), done.stderr)
        streams_found = list(streams_folder.glob("*.stream"))
        self.assertEqual(len(streams_found), 1)
        return streams.read(streams_found[0].read_bytes())

    @staticmethod
    def count(rows, what, text=None, kind=streams.RANGE):
        return sum(row[0] == kind and row[1] == what and text in (None, row[2]) for row in rows)

    def test_a_captured_step_ends_with_its_replays(self):
        rows, _ = self.run_marked("-c", CAPTURED, cuda=GRAPHS)
        self.assertEqual(self.count(rows, streams.STEP), 5)  # one that ran, four replays
        self.assertEqual(self.count(rows, streams.PHASE, "optimizer"), 2)

    def test_the_allocator_is_asked_in_the_third_step(self):
        program = TRAINING.replace("    optimizer.step()", "    torch.cuda.allocate(100 + step)\n    optimizer.step()")
        rows, facts = self.run_marked("-c", program, cuda=ALLOCATOR)
        blocks = [row for row in rows if row[:2] == (streams.MEMORY, streams.BLOCK)]
        self.assertEqual(len(blocks), 1)
        steps = sorted(row[3:5] for row in rows if row[:2] == (streams.RANGE, streams.STEP))
        self.assertTrue(steps[2][0] <= blocks[0][3] + 2000 and blocks[0][3] <= steps[2][1] + 2000)  # whole microseconds
        self.assertEqual(self.count(rows, streams.AMOUNT, "torch_allocated_bytes", streams.MARK), 5)
        self.assertEqual((facts["device cuda:0"], facts["torch reserved cuda:0"]), ("stand-in", "9"))
        self.assertNotIn("no allocator", facts)

    def test_what_the_recorder_does_between_steps_is_a_range(self):
        rows, _ = self.run_marked("-c", TRAINING, cuda=ALLOCATOR)
        own = sorted(row[3:5] for row in rows if row[:2] == (streams.RANGE, streams.RECORDER))
        steps = sorted(row[3:5] for row in rows if row[:2] == (streams.RANGE, streams.STEP))
        self.assertEqual(len(own), 5)
        for (_, step_end), (begin, end) in zip(steps, own):
            self.assertTrue(begin <= step_end <= end)

    def test_a_device_that_did_nothing_does_not_stand_for_the_one_that_did(self):
        """A rank asks the allocator of every device; the zero of the last one was what the record kept."""
        site = self.folder / "site"
        write_torch(site, cuda=ALLOCATOR.replace("return 1", "return 2").replace("return 7", "return 0 if device else 7")
                    .replace("return 9", "return 3 if device else 9"))
        program = TRAINING.replace("    optimizer.step()", "    torch.cuda.allocate(100 + step)\n    optimizer.step()")
        done = subprocess.run([ROOFLM, "record", "-o", "x.rooflm", "--", sys.executable, "-c", program], cwd=self.folder,
                              env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        with contextlib.closing(sqlite3.connect(self.folder / "x.rooflm")) as record:
            facts = record.execute("SELECT key, value, text FROM fact WHERE key LIKE 'torch%' ORDER BY key").fetchall()
        self.assertEqual(facts, [("torch_allocated_bytes", 7.0, "cuda:0"), ("torch_reserved_bytes", 9.0, "cuda:0"),
                                 ("torch_reserved_bytes cuda:1", 3.0, "cuda:1")])

    def test_versions_before_2(self):
        changed = {name.removesuffix(".py"): text for name, text in OLD.items()}
        rows, _ = self.run_marked("-c", TRAINING, **changed)
        self.assertEqual(self.count(rows, streams.STEP), 5)
        self.assertEqual((self.count(rows, streams.PHASE, "backward"), self.count(rows, streams.PHASE, "optimizer")), (5, 5))
        self.assertGreaterEqual(self.count(rows, streams.GRADIENT, "1", streams.MARK), 4)

    def test_what_an_optimizer_calls_is_no_part_of_it(self):
        closure = "def closure():\n    " + TRAINING.split("for step in range(5):\n    ")[1].split("    optimizer")[0] + "    return 3\n"
        old = {name.removesuffix(".py"): text for name, text in OLD.items()}
        for call, changed in (("closure", {}), ("closure=closure", {}), ("closure", old)):
            with self.subTest(call=call, old=bool(changed)):
                program = (TRAINING.split("for step in")[0] + closure +
                           f"for step in range(5): assert optimizer.step({call}) == 3\n")
                rows, _ = self.run_marked("-c", program, **changed)
                self.assertEqual(self.count(rows, streams.STEP), 5)
                self.assertEqual(self.count(rows, streams.PHASE, "backward"), 5)
                optimizers = [row[3:5] for row in rows if row[:3] == (streams.RANGE, streams.PHASE, "optimizer")]
                self.assertEqual(len(optimizers), 10)  # before the closure, and after it
                others = [row for row in rows if row[0] == streams.RANGE and (row[1] == streams.MODULE or row[2] == "backward")]
                self.assertGreater(len(others), 15)
                for _, _, name, start, end, _ in others:
                    self.assertFalse([span for span in optimizers if span[0] < end and start < span[1]], name)

    def test_arguments_by_name_and_outputs_that_are_dictionaries(self):
        rows, _ = self.run_marked("-c", KEYWORDS)
        self.assertEqual(self.count(rows, streams.MODULE, "Leaf"), 1)
        self.assertEqual(self.count(rows, streams.GRADIENT, "Leaf", streams.MARK), 1)

    def test_calls_of_compiled_graphs_are_ranges(self):
        with_compile = textwrap.dedent(TORCH["__init__.py"]) + "def compile(model): return model\n"
        rows, _ = self.run_marked("-c", COMPILED, **{"__init__": with_compile})
        # The first step says that there are some.
        self.assertEqual(self.count(rows, streams.USER, "## Call CompiledFxGraph fabc ##"), 4)

    def test_a_real_torch(self):
        python = next((python for python in (sys.executable, "/usr/bin/python3")
                       if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0), None)
        if python is None:
            self.skipTest("no Python here has torch (Debian: python3-torch)")
        rows, facts = self.run_marked(str(ROOT / "tests" / "inject" / "torch_program.py"), "eager", "--device", "cpu", "--length",
                                      "16", "--layers", "2", "--steps", "5", python=python)
        self.assertEqual(self.count(rows, streams.STEP), 5)
        self.assertEqual((self.count(rows, streams.PHASE, "backward"), self.count(rows, streams.PHASE, "optimizer")), (5, 5))
        for module in ("embedding", "layers.0.attention.qkv", "layers.1.mlp", "head"):
            self.assertEqual(self.count(rows, streams.MODULE, module), 4, module)
            self.assertGreaterEqual(self.count(rows, streams.GRADIENT, module, streams.MARK), 4, module)
        self.assertIn("module layers.1.norm2", facts)

    def test_helpers_that_did_nothing_are_no_runs(self):
        site = self.folder / "site"
        write_torch(site)
        script = ("import subprocess, sys\nhelper = 'import time, torch; time.sleep(0.2)'\n"
                  "child = subprocess.Popen([sys.executable, '-c', helper])\n" + TRAINING + "child.wait()\n")
        done = subprocess.run([ROOFLM, "record", "-o", "x.rooflm", "--", sys.executable, "-c", script], cwd=self.folder,
                              env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("process", done.stderr)
        self.assertIn("5 steps", done.stderr)


if __name__ == "__main__":
    unittest.main()
