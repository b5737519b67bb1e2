#!/usr/bin/env python3
"""Training steps of PyTorch to be recorded, and ways to end badly. Run by scripts/gpu_record and, on the processor, by tests.

torch_program.py MODE [--steps N] [--device cuda|cpu]: a small decoder, a step each of forward, backward and AdamW, as
  eager, compile, reduce (torch.compile, with CUDA graphs), llama and llama-compile (transformers), callables (layers as CUDA
  graphs), graph (the whole step as one), ddp, ddp-compile, llama-ddp-compile, fork, crash, kill, exit, or traces (files of
  PyTorch's own tools).
"""
import argparse
import os
import signal
import sys
import time

import torch
from torch import nn

WIDTH, HEADS, VOCABULARY = 256, 4, 1000


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-2, -1) / (width // HEADS) ** 0.5, -1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.attention, self.norm2, self.mlp = (nn.LayerNorm(width), Attention(width), nn.LayerNorm(width),
                                                            Mlp(width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, layers, width=WIDTH):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return nn.functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def llama(layers):
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=3 * WIDTH,
                                        num_hidden_layers=layers, num_attention_heads=HEADS,
                                        num_key_value_heads=HEADS // 2, max_position_embeddings=256))


class Training:
    def __init__(self, arguments):
        device = arguments.device
        torch.manual_seed(1)
        self.is_llama = arguments.mode.startswith("llama")
        self.model = (llama if self.is_llama else Decoder)(arguments.layers).to(device)
        capturable = {"capturable": True} if arguments.mode == "graph" else {}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, **capturable)
        self.tokens, self.targets = (torch.randint(0, VOCABULARY, (4, arguments.length), device=device) for _ in range(2))
        self.call = self.model

    def loss(self):
        if self.is_llama:
            return self.call(input_ids=self.tokens, labels=self.targets).loss
        return self.call(self.tokens, self.targets)

    def step(self):
        loss = self.loss()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def run(self, steps):
        for _ in range(steps):
            loss = self.step()
        print(f"{steps} steps, loss {float(loss.detach()):.2f}", flush=True)


def run_callables(training, steps):
    """Layers are graphs of CUDA."""
    sample = torch.randn(*training.tokens.shape, WIDTH, device="cuda", requires_grad=True)
    layers = tuple(training.model.layers)
    graphed = torch.cuda.make_graphed_callables(layers, tuple((sample,) for _ in layers))
    training.model.layers = nn.ModuleList(graphed)
    training.run(steps)


def run_graph(training, steps):
    """The whole step is one graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            training.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    training.optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = training.loss()
        loss.backward()
        training.optimizer.step()
    for _ in range(steps):
        graph.replay()
    print(f"{steps} steps, loss {float(loss.detach()):.2f}", flush=True)


def run_ddp(training, arguments):
    import torch.distributed as dist
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(20000 + os.getpid() % 20000))
    os.environ.setdefault("RANK", "0")
    os.environ.setdefault("WORLD_SIZE", "1")
    on_gpu = arguments.device == "cuda"
    dist.init_process_group("nccl" if on_gpu else "gloo")
    device_ids = [torch.cuda.current_device()] if on_gpu else None
    wrapped = nn.parallel.DistributedDataParallel(training.model, device_ids=device_ids)
    training.call = torch.compile(wrapped) if arguments.mode.endswith("compile") else wrapped
    training.run(arguments.steps)
    if on_gpu:  # between one rank and itself, too, by a kernel of NCCL: an all-reduce of one is a copy
        out = torch.empty_like(training.tokens)
        for _ in range(3):
            dist.all_to_all_single(out, training.tokens)
        torch.cuda.synchronize()
    dist.destroy_process_group()


def write_traces(training, folder):
    """Three steps as torch.profiler and the allocator's history see them."""
    os.makedirs(folder, exist_ok=True)
    training.run(2)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
        for step in range(3):
            with torch.profiler.record_function(f"ProfilerStep#{step}"):
                training.step()
        torch.cuda.synchronize()
    profile.export_chrome_trace(os.path.join(folder, "trace.json.gz"))
    print(f"{len(profile.events())} events", flush=True)
    torch.cuda.memory._record_memory_history(max_entries=20_000)
    training.run(2)
    torch.cuda.memory._dump_snapshot(os.path.join(folder, "memory.pickle"))
    torch.cuda.memory._record_memory_history(enabled=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", default=".", help="folder of traces")
    arguments = parser.parse_args()
    if arguments.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    training = Training(arguments)
    if arguments.mode == "traces":
        return write_traces(training, arguments.out)
    if arguments.mode == "callables":
        return run_callables(training, arguments.steps)
    if arguments.mode == "graph":
        return run_graph(training, arguments.steps)
    if "ddp" in arguments.mode:
        return run_ddp(training, arguments)
    if arguments.mode in ("compile", "llama-compile"):
        training.call = torch.compile(training.model)
    if arguments.mode == "reduce":
        training.call = torch.compile(training.model, mode="reduce-overhead")
    training.run(arguments.steps)
    begun = time.monotonic()
    while arguments.mode in ("crash", "kill", "exit") and time.monotonic() - begun < 3:  # what is not written yet is lost
        training.run(arguments.steps)
    if arguments.mode == "fork":
        child = os.fork()
        if child == 0:  # CUDA cannot be used again here
            sys.exit(0)
        os.waitpid(child, 0)
        training.run(arguments.steps)
    elif arguments.mode == "crash":
        os.abort()
    elif arguments.mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif arguments.mode == "exit":
        os._exit(3)
    return None


if __name__ == "__main__":
    main()
