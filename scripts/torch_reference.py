#!/usr/bin/env python3
"""Opens Hugging Face directories that rooflm reads and writes with plain PyTorch: evaluates, trains, creates.

    torch_reference.py eval  DIR SHARD --batch 4 --seq 64
    torch_reference.py train DIR SHARD --out DIR2 --steps 10 --batch 4 --seq 64 --lr 1e-3
    torch_reference.py init  DIR --config config.json --seed 0

`eval` prints the same loss as `rooflm eval --model DIR --data SHARD`: the mean cross-entropy in nats over the
consecutive windows of B*T tokens of the shard (targets one further; what is left at the end is not read).
The models are those of torch_models.py; --transformers uses the transformers library instead, where it is
installed. Results are JSON on stdout, progress goes to stderr.
"""
import argparse
import json
import math
import os
import sys

import numpy as np
import torch

import safetensors_io
import torch_models

SHARD_FORMATS = {(20240520, 1): np.uint16, (20240801, 7): np.uint32}
TORCH_NAMES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}


def read_shard(path):
    """The tokens of a shard in llm.c's format: 256 int32 (magic, version, count, ...), then the tokens."""
    header = np.fromfile(path, dtype="<i4", count=256)
    if len(header) < 256:
        raise ValueError(f"{path}: shorter than the 1024 bytes of a shard's header")
    magic, version, count = (int(word) for word in header[:3])
    if (magic, version) not in SHARD_FORMATS:
        raise ValueError(f"{path}: magic {magic} version {version}, expected one of {sorted(SHARD_FORMATS)}")
    tokens = np.fromfile(path, dtype=SHARD_FORMATS[magic, version], offset=1024)
    count &= 0xFFFFFFFF
    if len(tokens) != count:
        raise ValueError(f"{path}: header says {count} tokens, the file holds {len(tokens)}")
    return torch.from_numpy(tokens.astype(np.int64))


def windows(tokens, batch, seq):
    """Consecutive ([B, T] tokens, [B, T] targets)."""
    size = batch * seq
    count = (len(tokens) - 1) // size
    if count == 0:
        raise ValueError(f"{len(tokens)} tokens are too few for one batch of {batch} x {seq} and its targets")
    for i in range(count):
        at = i * size
        yield tokens[at : at + size].view(batch, seq), tokens[at + 1 : at + size + 1].view(batch, seq)


def read_config(directory):
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        return json.load(file)


def load(directory, use_transformers=False):
    """The model of a directory in float32. Every tensor must be there, and none may be left over."""
    if use_transformers:
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(directory, torch_dtype=torch.float32)
    model = torch_models.build(read_config(directory))
    tensors = {}
    for name, array in safetensors_io.read_directory(directory).items():
        if name.endswith((".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq")):
            continue  # masks and tables that old files carry
        if model.config["model_type"] == "gpt2" and not name.startswith(("transformer.", "lm_head.")):
            name = "transformer." + name
        tensors[name] = torch.from_numpy(np.array(array, dtype=np.float32))
    tied = model.config["model_type"] == "gpt2" or model.config.get("tie_word_embeddings", False)
    if tied:
        tensors.pop("lm_head.weight", None)
    model.load_state_dict(tensors, strict=True)
    return model


def save(model, directory, dtype):
    os.makedirs(directory, exist_ok=True)
    if hasattr(model, "save_pretrained"):
        model.save_pretrained(directory, safe_serialization=True)
        return
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
        json.dump(dict(model.config, torch_dtype=TORCH_NAMES[dtype]), file, indent=2)
        file.write("\n")
    tensors = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    safetensors_io.write_file(os.path.join(directory, "model.safetensors"), tensors, dtype)


def evaluate(args):
    model = load(args.directory, args.transformers).to(DTYPES[args.dtype]).eval()
    total, batches = 0.0, 0
    with torch.no_grad():
        for tokens, targets in windows(read_shard(args.shard), args.batch, args.seq):
            total += torch_models.loss_of(model, tokens, targets).double().item()
            batches += 1
            if args.batches and batches == args.batches:
                break
    loss = total / batches
    count = batches * args.batch * args.seq
    print(json.dumps({"loss": loss, "perplexity": math.exp(loss), "tokens": count, "batches": batches}))


def train(args):
    model = load(args.directory, args.transformers).to(DTYPES[args.dtype]).train()
    optimizer = torch_models.adamw(model, args.lr, (args.beta1, args.beta2), args.eps, args.weight_decay)
    batches = list(windows(read_shard(args.shard), args.batch, args.seq))
    losses = []
    for step in range(args.steps):
        tokens, targets = batches[step % len(batches)]
        optimizer.zero_grad()
        loss = torch_models.loss_of(model, tokens, targets)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip) if args.clip else float("nan")
        optimizer.step()
        losses.append(loss.item())
        print(f"step {step + 1}: loss {losses[-1]:.6f}, gradient norm {float(norm):.4f}", file=sys.stderr)
    save(model.float(), args.out, args.store)
    print(json.dumps({"losses": losses}))


def init(args):
    with open(args.config, encoding="utf-8") as file:
        config = json.load(file)
    model = torch_models.build(config)
    generator = torch.Generator().manual_seed(args.seed)
    torch_models.initialise(model, config.get("initializer_range", 0.02), generator)
    save(model, args.directory, args.store)
    count = sum(p.numel() for p in model.parameters())
    print(json.dumps({"directory": args.directory, "parameters": count}))


def parse(argv):
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    commands = parser.add_subparsers(dest="command", required=True)
    on_data = argparse.ArgumentParser(add_help=False)
    on_data.add_argument("directory", help="Hugging Face directory: config.json and safetensors")
    on_data.add_argument("shard", help="tokens in llm.c's .bin format")
    on_data.add_argument("--batch", type=int, default=4, help="sequences per batch (default 4)")
    on_data.add_argument("--seq", type=int, default=64, help="tokens per sequence (default 64)")
    on_data.add_argument("--dtype", choices=DTYPES, default="fp32", help="of weights and arithmetic")
    on_data.add_argument("--transformers", action="store_true", help="use the transformers library's models")
    store = argparse.ArgumentParser(add_help=False)
    store.add_argument("--store", choices=["F32", "BF16", "F16"], default="F32", help="dtype of the file")

    sub = commands.add_parser("eval", parents=[on_data], help="mean cross-entropy on a shard")
    sub.add_argument("--batches", type=int, default=0, help="stop after this many (default: the whole shard)")
    sub.set_defaults(run=evaluate)
    sub = commands.add_parser("train", parents=[on_data, store], help="a few AdamW steps")
    sub.add_argument("--out", required=True, help="directory to write")
    sub.add_argument("--steps", type=int, default=10)
    numbers = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight-decay": 0.1, "clip": 1.0}
    for name, value in numbers.items():
        sub.add_argument(f"--{name}", type=float, default=value, help=f"default {value}")
    sub.set_defaults(run=train)
    sub = commands.add_parser("init", parents=[store], help="a directory with random weights")
    sub.add_argument("directory")
    sub.add_argument("--config", required=True, help="config.json of the model")
    sub.add_argument("--seed", type=int, default=0)
    sub.set_defaults(run=init)
    return parser.parse_args(argv)


def main(argv):
    args = parse(argv)
    try:
        args.run(args)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        print(f"torch_reference.py: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
