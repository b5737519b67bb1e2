#!/usr/bin/env python3
"""Makes tests/goldens/{gpt2,llama} with PyTorch: what a tiny model of each kind computes, to the last digits.

    python3 scripts/make_goldens.py [tests/goldens]

Each directory opens as a Hugging Face directory and holds
  config.json             the model; odd sizes on purpose
  model.safetensors       initial weights, F32, Hugging Face names and layouts
  gradients.safetensors   gradient of every parameter at the initial weights on batch 0, F64, same names.
                          Computed in float64 without clipping; a tied tensor's is the sum over both its uses
  trained.safetensors     every parameter after the 10 steps, computed in float64, stored F32
  golden.json
    batch, seq            B and T; T is below the model's number of positions
    optimizer             AdamW: lr, beta1, beta2, eps, weight_decay (only on tensors with 2 or more
                          dimensions), clip (global norm; gradients times min(1, clip / (norm + 1e-6)))
    batches               per step {tokens, targets}, each B lists of T token ids
    losses                loss before each step in float64: mean cross-entropy in nats; losses[0] belongs to
                          gradients.safetensors
    losses_fp32           the same run in float32: how far single precision strays
    gradient_norms        global norm before clipping, float64
The weights are larger than a real initialisation (normal, 0.2), norms and biases are random too, so that
every term of every gradient matters.
"""
import json
import os
import sys

import torch

import safetensors_io
import torch_models

CONFIGS = {
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 67, "n_positions": 13,
        "n_embd": 15, "n_layer": 2, "n_head": 3, "n_inner": 34, "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
    },
    "llama": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 53, "hidden_size": 24,
        "intermediate_size": 22, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 13, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
    },
}
BATCH, SEQ, STEPS = 3, 11, 10
OPTIMIZER = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0}


def initial_model(config, generator):
    """A float64 model whose every weight is a float32 number."""
    model = torch_models.build(config)
    with torch.no_grad():
        for parameter in model.parameters():
            middle = parameter.clone() if parameter.dim() < 2 else 0.0
            parameter.normal_(0, 0.2, generator=generator).add_(middle)
    return model.double()


def train(model, batches):
    """The losses and gradient norms of STEPS steps, and the unclipped gradients of the first."""
    o = OPTIMIZER
    optimizer = torch_models.adamw(model, o["lr"], (o["beta1"], o["beta2"]), o["eps"], o["weight_decay"])
    losses, norms, gradients = [], [], {}
    for batch in batches:
        optimizer.zero_grad()
        loss = torch_models.loss_of(model, torch.tensor(batch["tokens"]), torch.tensor(batch["targets"]))
        loss.backward()
        gradients = gradients or {name: p.grad.numpy().copy() for name, p in model.named_parameters()}
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), o["clip"]).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, gradients


def arrays_of(model):
    return {name: parameter.detach().numpy().copy() for name, parameter in model.named_parameters()}


def make(directory, config):
    os.makedirs(directory, exist_ok=True)
    generator = torch.Generator().manual_seed(20240520)
    model = initial_model(config, generator)
    rows = torch.randint(0, config["vocab_size"], (STEPS, BATCH, SEQ + 1), generator=generator)
    batches = [{"tokens": r[:, :-1].tolist(), "targets": r[:, 1:].tolist()} for r in rows]
    initial = arrays_of(model)
    losses, norms, gradients = train(model, batches)
    single = torch_models.build(config)
    single.load_state_dict({name: torch.from_numpy(array).float() for name, array in initial.items()})
    losses_fp32, _, _ = train(single, batches)

    safetensors_io.write_file(os.path.join(directory, "model.safetensors"), initial, "F32")
    safetensors_io.write_file(os.path.join(directory, "gradients.safetensors"), gradients, "F64")
    safetensors_io.write_file(os.path.join(directory, "trained.safetensors"), arrays_of(model), "F32")
    golden = {
        "batch": BATCH, "seq": SEQ, "optimizer": OPTIMIZER, "losses": losses, "losses_fp32": losses_fp32,
        "gradient_norms": norms, "batches": batches,
    }
    texts = {"config.json": json.dumps(config, indent=2), "golden.json": json.dumps(golden)}
    for name, text in texts.items():
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(text + "\n")
    print(f"{directory}: loss {losses[0]:.6f} -> {losses[-1]:.6f}, "
          f"gradient norms {min(norms):.2f} to {max(norms):.2f}")


def main(argv):
    here = os.path.dirname(os.path.abspath(__file__))
    root = argv[0] if argv else os.path.join(here, "..", "tests", "goldens")
    torch.set_num_threads(1)
    for kind, config in CONFIGS.items():
        make(os.path.normpath(os.path.join(root, kind)), config)


if __name__ == "__main__":
    main(sys.argv[1:])
