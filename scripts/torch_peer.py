#!/usr/bin/env python3
"""The strongest training step of PyTorch for a language model, timed on a GPU: what rooflm's steps are set beside.

usage: torch_peer.py CASE [--mode MODE] [--eager] [--wait]

CASE is JSON: arch (gpt2: LayerNorm, learned positions, GELU, biases, tied head; llama: RMSNorm, rotary positions, SwiGLU),
d_model, d_ff, layers, heads, vocab, batch, seq, precision (bf16 by autocast, fp32, tf32). The model is compiled (MODE of
torch.compile), attention is the fastest of PyTorch's kernels for its shape, AdamW is fused, and forward, backward and update
are captured as one CUDA graph. --eager: none of that, op by op. --wait: says "ready" before it is timed, and waits for a line.

Prints a line of JSON: status, step (median ms of 20 steps, each waited for), min, peak_mib, attention, loss, ready_s.
"""
import argparse
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

WARM_STEPS = 4  # the first compiles, the next ones fill caches
TIMED_STEPS = 20
KERNELS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
           "math": SDPBackend.MATH}


def rotate(x, cos, sin):
    """Rotary positions of x [B, H, T, D], whose halves are pairs; cos and sin [T, D / 2]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)


class Layer(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x)); x is [B, T, C]."""

    def __init__(self, case):
        super().__init__()
        width, inner, self.heads = case["d_model"], case["d_ff"], case["heads"]
        self.is_gpt2 = case["arch"] == "gpt2"
        norm = nn.LayerNorm if self.is_gpt2 else nn.RMSNorm
        self.norm1, self.norm2 = norm(width, eps=1e-5), norm(width, eps=1e-5)
        self.qkv = nn.Linear(width, 3 * width, bias=self.is_gpt2)
        self.out = nn.Linear(width, width, bias=self.is_gpt2)
        self.up = nn.Linear(width, inner if self.is_gpt2 else 2 * inner, bias=self.is_gpt2)  # SwiGLU: gate and up in one GEMM
        self.down = nn.Linear(inner, width, bias=self.is_gpt2)

    def attention(self, x, cos, sin):
        batch, steps, width = x.shape
        q, k, v = (part.view(batch, steps, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        if not self.is_gpt2:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, steps, width))

    def feed_forward(self, x):
        if self.is_gpt2:
            return self.down(F.gelu(self.up(x), approximate="tanh"))
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.feed_forward(self.norm2(x))


class LanguageModel(nn.Module):
    """Mean cross-entropy of the next tokens; tokens and targets [B, T]."""

    def __init__(self, case):
        super().__init__()
        width, half = case["d_model"], case["d_model"] // case["heads"] // 2
        is_gpt2 = case["arch"] == "gpt2"
        self.tokens = nn.Embedding(case["vocab"], width)
        self.positions = nn.Embedding(case["seq"], width) if is_gpt2 else None
        self.layers = nn.ModuleList(Layer(case) for _ in range(case["layers"]))
        self.norm = (nn.LayerNorm if is_gpt2 else nn.RMSNorm)(width, eps=1e-5)
        self.head = nn.Linear(width, case["vocab"], bias=False)
        if is_gpt2:
            self.head.weight = self.tokens.weight
        angles = torch.outer(torch.arange(case["seq"]), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())


def milliseconds(work, count):
    """Of each run of work, waited for."""
    times = []
    for _ in range(count):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def fastest_attention(case):
    """The name of the kernel with the least time forward and backward on the case's shape."""
    dtype = torch.bfloat16 if case["precision"] == "bf16" else torch.float32
    shape = case["batch"], case["heads"], case["seq"], case["d_model"] // case["heads"]
    q, k, v = (torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
    times = {}
    for name, kernel in KERNELS.items():
        def both():
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            torch.autograd.grad(y, (q, k, v), y)
        try:
            with sdpa_kernel(kernel):
                both()
                times[name] = statistics.median(milliseconds(both, 5))
        except RuntimeError:  # it has no such shape or dtype, or no memory for it
            continue
    return min(times, key=times.get)


class Step:
    """Forward, backward and update of one model on one batch."""

    def __init__(self, case, mode):
        self.is_bf16 = case["precision"] == "bf16"
        self.model = LanguageModel(case).cuda()
        self.forward = self.model if mode is None else torch.compile(self.model, dynamic=False, mode=mode)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True, capturable=mode is not None)
        shape = case["batch"], case["seq"]
        self.tokens, self.targets = (torch.randint(0, case["vocab"], shape, device="cuda") for _ in range(2))
        self.loss = None

    def __call__(self):
        with torch.autocast("cuda", torch.bfloat16, enabled=self.is_bf16, cache_enabled=False):
            self.loss = self.forward(self.tokens, self.targets)
        self.loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def captured(self):
        """Its replay."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self()
        return graph.replay


def warm(step):
    stream = torch.cuda.Stream()  # of its own, as capturing asks for
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_STEPS):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()


def measure(case, mode, waits):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest" if case["precision"] == "fp32" else "high")
    begin = time.time()
    attention = fastest_attention(case)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step = Step(case, mode)
    with sdpa_kernel(KERNELS[attention]):
        warm(step)
        run = step if mode is None else step.captured()
        run()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # others may need it
        ready_s = time.time() - begin
        if waits:
            print("ready", flush=True)
            sys.stdin.readline()
        milliseconds(run, 3)
        times = milliseconds(run, TIMED_STEPS)
    return {"status": "success", "step": statistics.median(times), "min": min(times), "attention": attention,
            "peak_mib": torch.cuda.max_memory_allocated() / 2**20, "loss": step.loss.item(), "ready_s": ready_s}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", type=json.loads)
    parser.add_argument("--mode", default="default", help="of torch.compile")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--wait", action="store_true")
    arguments = parser.parse_args()
    try:
        result = measure(arguments.case, None if arguments.eager else arguments.mode, arguments.wait)
    except torch.OutOfMemoryError:
        result = {"status": "oom"}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
