#!/usr/bin/env python3
"""Times eager training steps of PyTorch under what `rooflm record` can keep, one after the other in one process.

Run by scripts/gpu_record, with or without the recorder around it. The model is that of --torch-script (a module with LM and
SIZES). Each round visits every variant once, right after a visit in which nothing is kept: other users of the machine
change times by more than the recorder does, so pairs are compared. Prints one JSON object: for each variant the pairs of
median steps in milliseconds, of least steps, and of microseconds that the host needs to launch a small kernel.
"""
import argparse
import ctypes
import importlib.util
import json
import os
import statistics
import sys
import time

DEVICE = "kernels,copies,waits,overhead,memory"
NEVER = 10**9
# Activities, and every how manieth step is marked; whether gradients are.
VARIANTS = {
    "off": ("", NEVER, True),
    "kernels": ("kernels", NEVER, True),
    "all of the device": (DEVICE, NEVER, True),
    "launches of the runtime": (DEVICE + ",launches", NEVER, True),
    "calls of the runtime": (DEVICE + ",calls", NEVER, True),
    "launches": (DEVICE + ",launches,driver", NEVER, True),
    "calls": (DEVICE + ",calls,driver", NEVER, True),
    "modules marked": ("", 1, False),
    "gradients marked": ("", 1, True),
    "everything": (DEVICE + ",calls,driver", 16, True),
    "everything, each step marked": (DEVICE + ",calls,driver", 1, True),
}


def load(path):
    spec = importlib.util.spec_from_file_location("peer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Step:
    """One training step, as the script's own."""

    def __init__(self, torch, peer, arguments):
        width, inner, layers, heads = peer.SIZES[arguments.size]
        self.torch = torch
        self.model = peer.LM(arguments.vocab, arguments.seq, width, inner, layers, heads, "llama", "sdpa").cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        shape = (arguments.batch, arguments.seq)
        self.tokens = [torch.randint(0, arguments.vocab, shape, device="cuda") for _ in range(2)]
        self.small = torch.zeros(1024, device="cuda")

    def __call__(self):
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        with self.torch.autocast("cuda", self.torch.bfloat16):
            loss = self.model(*self.tokens)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start)

    def launch_us(self, count=1500):
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            self.small.add_(1.0)
        taken = time.perf_counter() - start
        self.torch.cuda.synchronize()
        return 1e6 * taken / count


class Recorder:
    """Switches what is recorded; does nothing where nobody records."""

    def __init__(self):
        path = os.environ.get("CUDA_INJECTION64_PATH")
        self.library = ctypes.CDLL(path) if path and os.environ.get("ROOFLM_RECORD_FOLDER") else None
        self.marks = getattr(sys.modules.get("rooflm_torch"), "marks", None)

    def switch(self, activities, every, with_gradients):
        if self.library is None:
            return
        self.library.rooflm_choose(activities.encode())
        if self.marks is not None:
            self.marks.every, self.marks.with_gradients = every, with_gradients
            self.marks.switch(every == 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-script", required=True)
    parser.add_argument("--size", default="small")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--vocab", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=5, help="of a visit, after two that are not counted")
    parser.add_argument("--variants", default="*", help="names, separated by ;")
    arguments = parser.parse_args()
    names = list(VARIANTS) if arguments.variants == "*" else arguments.variants.split(";")
    import torch
    peer = load(arguments.torch_script)
    recorder = Recorder()
    recorder.switch(*VARIANTS["off"])
    step = Step(torch, peer, arguments)
    for _ in range(20):
        step()
    before = [step() for _ in range(20)]

    def visit(name):
        recorder.switch(*VARIANTS[name])
        for _ in range(2):
            step()
        times = [step() for _ in range(arguments.steps)]
        return statistics.median(times), min(times), step.launch_us()

    pairs = {name: [] for name in names}
    for turn in range(arguments.rounds):
        for name in names[turn % len(names):] + names[:turn % len(names)]:
            pairs[name].append((visit("off"), visit(name)))
    recorder.switch(*VARIANTS["off"])
    print(json.dumps({"before": statistics.median(before), "pairs": pairs, "cores": os.cpu_count()}), flush=True)


if __name__ == "__main__":
    main()
