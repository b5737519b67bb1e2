#!/usr/bin/env python3
"""A PyTorch peer on several GPUs of this host: training steps alone, under DDP and under FSDP2, one process per GPU.

    scripts/torch_ranks.py PEER --sizes xl small [--modes none ddp fsdp] [--gpus 2] [--batch 4] [--seq 1024] [--vocab 10000]

PEER is a Python script with SIZES, from names to (d_model, d_ff, layers, heads), and a class
LM(vocab, seq, d_model, d_ff, layers, heads, kind, attention) whose `b` are its layers and whose forward(x, y) returns the
loss. The whole model is compiled; with --compile layers one layer after the other, as
torchtitan does, which takes seconds instead of minutes but leaves more work to the host. AdamW is fused, autocast is bf16.

Modes: `none`, no communication, all GPUs at once; `ddp`, DistributedDataParallel with the bf16 compression hook; `fsdp`, FSDP2
with bf16 parameters and gradients. Prints one JSON line for each size and mode: the median step of each rank in ms, and the
peak of allocated memory. The step of a job is that of its slowest rank.
"""
import argparse
import importlib.util
import json
import os
import socket
import statistics
import subprocess
import sys
import time

WARM, STEPS = 6, 15


def load(path):
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("peer", path)
    peer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peer)
    return peer


def make_model(peer, arguments, size, mode, rank):
    """The model of the mode, and what its forward pass runs in."""
    import torch
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    d_model, d_ff, layers, heads = peer.SIZES[size]
    model = peer.LM(arguments.vocab, arguments.seq, d_model, d_ff, layers, heads, "llama", "sdpa").cuda()
    if arguments.compile == "layers":
        for layer in model.b:
            layer.compile()
    autocast = torch.autocast("cuda", torch.bfloat16)
    if mode == "ddp":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True)
        model.register_comm_hook(None, bf16_compress_hook)
    if mode == "fsdp":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
        for layer in model.b:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        autocast = torch.autocast("cuda", enabled=False)
    return torch.compile(model) if arguments.compile == "model" else model, autocast


def measure(peer, arguments, size, mode, rank):
    import torch
    import torch.distributed as dist
    model, autocast = make_model(peer, arguments, size, mode, rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x, y = (torch.randint(0, arguments.vocab, (arguments.batch, arguments.seq), device="cuda") for _ in range(2))
    torch.cuda.reset_peak_memory_stats()
    seconds = []
    for step in range(WARM + STEPS):
        if step == WARM:
            dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with autocast:
            loss = model(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if step >= WARM:
            seconds.append(time.perf_counter() - begin)
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, (1e3 * statistics.median(seconds), torch.cuda.max_memory_allocated()))
    if rank == 0:
        print(json.dumps({"size": size, "mode": mode, "batch": arguments.batch, "seq": arguments.seq,
                          "step_ms": [round(ms, 3) for ms, _ in everyone], "peak_bytes": max(peak for _, peak in everyone)}),
              flush=True)
    del model, optimizer
    torch.cuda.empty_cache()


def run_rank(arguments, rank):
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    peer = load(arguments.peer)
    for size in arguments.sizes:
        for mode in arguments.modes:
            measure(peer, arguments, size, mode, rank)
            torch._dynamo.reset()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer")
    parser.add_argument("--sizes", nargs="+", default=["xl", "small"])
    parser.add_argument("--modes", nargs="+", choices=["none", "ddp", "fsdp"], default=["none", "ddp", "fsdp"])
    parser.add_argument("--compile", choices=["model", "layers"], default="model")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--vocab", type=int, default=10000)
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        return run_rank(arguments, int(os.environ["RANK"]))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(arguments.gpus)}
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)})
             for rank in range(arguments.gpus)]
    codes = [rank.wait() for rank in ranks]
    sys.exit(max(abs(code) for code in codes))


if __name__ == "__main__":
    main()
