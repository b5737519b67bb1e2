#!/usr/bin/env python3
"""Measures what `rooflm record` costs training steps of PyTorch: two processes of the same program, one of them recorded, in turn.

Run by scripts/gpu_record. Both processes hold the model of --torch-script (a module with LM and SIZES) and wait; in each turn one
of them takes --steps steps, synchronized one by one, then the other, and who begins alternates. So both meet the same machine,
minute by minute, and neither pays for starting. Prints the medians of the turns' median steps (what steps take that are only
timed), of their means (with the steps of which the device was recorded), and what the record has: bytes, losses, memory.

record_turns.py ROOFLM --torch-script SCRIPT [--mode eager|compile|graph] [--size S] [--layers N] [--seq T] [-- options of record]
"""
import argparse
import importlib.util
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

RECORDED_OF = 64  # steps of which the recorder looks at the device in two, unless --trace-every says otherwise
UNCOUNTED = 2     # first steps of a turn


def load(path):
    spec = importlib.util.spec_from_file_location("peer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Program:
    """Training steps as the script's own: eager, compiled, or the whole step as one graph of CUDA."""

    def __init__(self, arguments):
        import torch
        peer = load(arguments.torch_script)
        torch.manual_seed(0)
        width, inner, layers, heads = peer.SIZES[arguments.size]
        self.torch = torch
        self.model = peer.LM(arguments.vocab, arguments.seq, width, inner, arguments.layers or layers, heads, "llama", "sdpa").cuda()
        is_graph = arguments.mode == "graph"
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True, capturable=is_graph)
        self.forward = torch.compile(self.model, dynamic=False) if arguments.mode == "compile" else self.model
        shape = (arguments.batch, arguments.seq)
        self.tokens = [torch.randint(0, arguments.vocab, shape, device="cuda") for _ in range(2)]
        self.once = self.capture() if is_graph else self.train

    def train(self):
        with self.torch.autocast("cuda", self.torch.bfloat16):
            loss = self.forward(*self.tokens)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def capture(self):
        side = self.torch.cuda.Stream()
        side.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(side):
            for _ in range(3):
                self.train()
        self.torch.cuda.current_stream().wait_stream(side)
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            self.train()
        return graph.replay

    def step(self):
        """Milliseconds of one step."""
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        self.once()
        self.torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start)


def work(arguments):
    """The program: for each line with a number, that many steps after two that do not count; one line with their times."""
    program = Program(arguments)
    for _ in range(arguments.warmup):
        program.step()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        for _ in range(UNCOUNTED):
            program.step()
        times = [program.step() for _ in range(int(line))]
        print(json.dumps({"times": times, "peak_kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}), flush=True)


class Turns:
    """One of the two processes."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        sys.exit(f"the program ended with exit code {self.process.wait()}")

    def take(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        self.process.stdin.close()
        return self.process.wait()


def record_has(path):
    """Kernels, all activities, bytes of each, what was lost."""
    database = sqlite3.connect(path)
    one = lambda query: database.execute(query).fetchone()[0] or 0
    activities = one("SELECT COUNT(*) FROM activity")
    seen = {"kernels": one("SELECT COUNT(*) FROM activity JOIN activity_name n USING (run, name) WHERE n.kind = 'kernel'"),
            "activities": activities, "lost": one("SELECT TOTAL(value) FROM fact WHERE key = 'trace_lost'"),
            "bytes": os.path.getsize(path) / max(1, activities)}
    database.close()
    return seen


def measure(arguments, options):
    script = [sys.executable, os.path.abspath(__file__), "-", "--worker", "--torch-script", os.path.abspath(arguments.torch_script)]
    for name in ("mode", "size", "layers", "batch", "seq", "vocab", "warmup"):
        script += [f"--{name}", str(getattr(arguments, name))]
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "turns.rooflm")
        recorder = [os.path.abspath(arguments.rooflm), "record", "-o", record, *options, "--"]
        programs = [Turns(script), Turns([*recorder, *script])]
        for program in programs:
            program.answer()
        times, peaks = ([], []), [0, 0]
        for turn in range(arguments.turns):
            for which in ((0, 1), (1, 0))[turn % 2]:
                seen = programs[which].take(arguments.steps)
                times[which].append(seen["times"])
                peaks[which] = seen["peak_kb"]
        codes = [program.end() for program in programs]
        return times, peaks, codes, record_has(record)


def print_row(arguments, options, times, peaks, seen):
    """Of the pairs of turns: the median of what the recorded one took more, and its quartiles."""
    def more(of, off_turns, on_turns):
        shares = sorted(100 * (of(on) / of(off) - 1) for off, on in zip(off_turns, on_turns))
        return statistics.median(shares), shares[len(shares) // 4], shares[3 * len(shares) // 4]

    def period(turns):
        """Turns joined until each has as many steps as the recorder counts between two that it looks at."""
        each = max(1, round(RECORDED_OF / (arguments.steps + UNCOUNTED)))
        return [sum(turns[first:first + each], []) for first in range(0, len(turns) - each + 1, each)]
    middle = [statistics.median(statistics.median(turn) for turn in turns) for turns in times]
    print(f"{arguments.size} T={arguments.seq}{f' L={arguments.layers}' if arguments.layers else ''} {arguments.mode} {' '.join(options)}: "
          f"{arguments.turns} turns of {arguments.steps} steps: {middle[0]:.3f} ms, recorded {middle[1]:.3f} ms")
    for what, (share, low, high) in (("timed steps, medians of turns", more(statistics.median, *times)),
                                     ("all steps, means of 64", more(statistics.fmean, period(times[0]), period(times[1])))):
        print(f"  {what:32} {share:+6.2f} %  quartiles {low:+.2f} {high:+.2f}")
    print(f"  {seen['kernels']} kernels in {seen['activities']} activities of {seen['bytes']:.0f} bytes, {seen['lost']:.0f} lost; "
          f"memory of the program {1e-3 * peaks[0]:.0f} and {1e-3 * peaks[1]:.0f} MB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooflm")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--torch-script", required=True)
    parser.add_argument("--mode", choices=["eager", "compile", "graph"], default="eager")
    parser.add_argument("--size", default="small")
    parser.add_argument("--layers", type=int, default=0, help="0: as the size has")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--vocab", type=int, default=10000)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--steps", type=int, default=RECORDED_OF - UNCOUNTED, help="of a turn")
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    arguments, options = parser.parse_args(given[:cut]), given[cut + 1:]
    if arguments.worker:
        return work(arguments)
    times, peaks, codes, seen = measure(arguments, options)
    print_row(arguments, options, times, peaks, seen)
    return sys.exit(0 if codes == [0, 0] and seen["kernels"] and not seen["lost"] else 1)


if __name__ == "__main__":
    main()
