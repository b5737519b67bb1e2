#!/usr/bin/env python3
"""Measures what `rooflm record` costs training steps of PyTorch: processes of the same program, recorded or not, in turn.

Run by scripts/gpu_record. All processes hold the model of --torch-script (a module with LM and SIZES) and wait; in each turn every
one of them takes steps for --turn-s seconds (8 to 100 of them), synchronized one by one, and who begins changes. So all meet the
same machine, minute by minute, and none pays for starting. Prints, beside the process that is not recorded: of the turns' median steps the median of the
pairs, with its 95 % interval (what steps take that are only timed); the mean of all steps after the first (with those of which the device
is recorded, and the profiler's coming and going); what the record has: kernels, bytes of the file for each and for each row, losses, and how often stacks were really
sampled and what that took; memory of the process. The last line is JSON: of each recorded process its options, cost in percent with
the interval, and, of the first one with --most, whether that was reached.

record_turns.py ROOFLM --torch-script SCRIPT [--mode eager|compile|graph] [--size S] [--layers N] [--seq T] [--most PERCENT] -- OPTIONS
[-- OPTIONS..] with the options of each recorded process.
"""
import argparse
import importlib.util
import json
import math
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

UNCOUNTED = 2  # first steps of a turn
LEAST_TURNS = 6  # whose median has a 95 % interval


def load(path):
    spec = importlib.util.spec_from_file_location("peer", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["peer"] = module  # torch.compile looks for it there
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


def memory_kb():
    """Of this process now: its own pages, and those of files that it has touched."""
    with open("/proc/self/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return [int(fields[name].split()[0]) for name in ("RssAnon", "RssFile")]


def work(arguments):
    """The program: for each line with a number, that many steps after two that do not count; one line with their times."""
    program = Program(arguments)
    times = [program.step() for _ in range(arguments.warmup)]
    print(json.dumps({"step_ms": statistics.median(times[len(times) // 2:])}), flush=True)
    for line in sys.stdin:
        for _ in range(UNCOUNTED):
            program.step()
        times = [program.step() for _ in range(int(line))]
        print(json.dumps({"times": times, "memory_kb": memory_kb()}), flush=True)


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
    """Kernels, all activities, bytes of each, what was lost, what is known of sampled stacks."""
    database = sqlite3.connect(path)
    one = lambda query: database.execute(query).fetchone()[0] or 0
    activities = one("SELECT COUNT(*) FROM activity")
    seen = {"kernels": one("SELECT COUNT(*) FROM activity JOIN activity_name n USING (run, name) WHERE n.kind = 'kernel'"),
            "activities": activities, "lost": one("SELECT TOTAL(value) FROM fact WHERE key = 'trace_lost'"),
            "bytes": os.path.getsize(path) / max(1, activities), "size": os.path.getsize(path),
            "stacks": [text for text, in database.execute("SELECT text FROM fact WHERE key = 'stack_hertz'")]}
    database.close()
    return seen


def measure(arguments, sets):
    """Of each process, the first one not recorded: its turns' times and memory; exit codes; what each record has."""
    script = [sys.executable, os.path.abspath(__file__), "-", "--worker", "--torch-script", os.path.abspath(arguments.torch_script)]
    for name in ("mode", "size", "layers", "batch", "seq", "vocab", "warmup"):
        script += [f"--{name}", str(getattr(arguments, name))]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        records = [os.path.join(folder, f"{number}.rooflm") for number in range(len(sets))]
        commands = [script] + [[os.path.abspath(arguments.rooflm), "record", "-o", record, *options, "--", *script]
                               for record, options in zip(records, sets)]
        programs = [Turns(command) for command in commands]
        step_ms = [program.answer()["step_ms"] for program in programs][0]
        steps = min(100, max(8, round(1e3 * arguments.turn_s / step_ms)))
        times, memory = [[] for _ in programs], [None for _ in programs]
        for turn in range(arguments.turns):
            if turn >= LEAST_TURNS and time.monotonic() - begun > arguments.limit_s:
                print(f"stopped after {turn} turns: --limit-s {arguments.limit_s:g}")
                break
            first = turn % len(programs)
            for which in [*range(first, len(programs)), *range(first)]:
                seen = programs[which].take(steps)
                times[which].append(seen["times"])
                memory[which] = seen["memory_kb"]
        codes = [program.end() for program in programs]
        return times, memory, codes, [record_has(record) for record in records]


def median_of(shares):
    """The median and its 95 % interval, by ranks: nothing is assumed of how they are spread."""
    ordered, count = sorted(shares), len(shares)
    below = lambda rank: sum(math.comb(count, i) for i in range(rank + 1)) / 2 ** count  # P(no more than `rank` lie below it)
    rank = max([i for i in range(count // 2) if below(i) <= 0.025], default=0)
    return statistics.median(ordered), ordered[rank], ordered[count - 1 - rank]


def costs_of(arguments, sets, times, records):
    """Of each recorded process what it cost beside the one that is not recorded, in percent."""
    def percent(of, on_turns):
        return [100 * (of(on) / of(off) - 1) for off, on in zip(times[0], on_turns)]
    def mean(turns):
        return statistics.fmean(step for turn in turns for step in turn)
    costs = []
    for number, options in enumerate(sets):
        median, low, high = median_of(percent(statistics.median, times[number + 1]))
        cost = {"options": options, "timed_percent": median, "interval": [low, high],
                "all_percent": 100 * (mean(times[number + 1]) / mean(times[0]) - 1), "bytes": records[number]["bytes"],
                "kernel_bytes": records[number]["size"] / max(1, records[number]["kernels"]),
                "kernels": records[number]["kernels"], "lost": records[number]["lost"]}
        if number == 0 and arguments.most is not None:
            cost |= {"most": arguments.most, "reached": median <= arguments.most}
        costs.append(cost)
    return costs


def verdict_of(cost):
    """"+3.10 (+2.00 to +4.00)", and beside it whether what was asked was reached."""
    low, high = cost["interval"]
    said = {None: "", True: "reached", False: "MISSED"}[cost.get("reached")]
    return f"{cost['timed_percent']:+6.2f} ({low:+.2f} to {high:+.2f})", f"{said} {cost['most']:g}" if said else ""


def print_table(arguments, sets, times, memory, records, costs):
    print(f"{arguments.size} T={arguments.seq}{f' L={arguments.layers}' if arguments.layers else ''} {arguments.mode}, "
          f"{len(times[0])} turns of {len(times[0][0])} steps\n"
          f"{'options':32} {'step ms':>8} {'timed steps, %':>26} {'asked, %':>12} {'all steps, %':>12} {'kernels':>8} {'B/kernel':>8} "
          f"{'B/row':>5} {'lost':>4} {'own MB':>7} {'more MB':>7} {'files MB':>8}")
    for which, options in enumerate([None, *sets]):
        name = "not recorded" if options is None else " ".join(options) or "as it comes"
        line = f"{name:32} {statistics.median(statistics.median(turn) for turn in times[which]):8.3f}"
        if options is None:
            line += " " * 81
        else:
            cost, (measured, asked) = costs[which - 1], verdict_of(costs[which - 1])
            line += (f" {measured:>26} {asked:>12} {cost['all_percent']:+12.2f}"
                     f" {cost['kernels']:8} {cost['kernel_bytes']:8.0f} {cost['bytes']:5.0f} {cost['lost']:4.0f}")
        more = "" if options is None else f"{1e-3 * (memory[which][0] - memory[0][0]):+.0f}"
        print(f"{line} {1e-3 * memory[which][0]:7.0f} {more:>7} {1e-3 * memory[which][1]:8.0f}", flush=True)
    for options, seen in zip(sets, records):
        for text in seen["stacks"]:
            print(f"    stacks, {' '.join(options) or 'as it comes'}: {text}")


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
    parser.add_argument("--limit-s", type=float, default=math.inf, help="no turn begins later than this after the start")
    parser.add_argument("--turn-s", type=float, default=0.6, help="seconds of a turn, without what is recorded")
    parser.add_argument("--most", type=float, metavar="PERCENT", help="that timed steps of the first recorded process may take more")
    given = sys.argv[1:]
    marks = [at for at, word in enumerate(given) if word == "--"] + [len(given)]
    arguments = parser.parse_args(given[:marks[0]])
    if arguments.worker:
        return work(arguments)
    sets = [given[begin + 1:end] for begin, end in zip(marks, marks[1:])]
    times, memory, codes, records = measure(arguments, sets)
    costs = costs_of(arguments, sets, times, records)
    print_table(arguments, sets, times, memory, records, costs)
    print(json.dumps(costs))
    return sys.exit(1 if any(codes) or any(not seen["kernels"] or seen["lost"] for seen in records) else 0)


if __name__ == "__main__":
    main()
