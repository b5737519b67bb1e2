#!/usr/bin/env python3
"""Makes tests/goldens/{gpt2,llama}_{lora,dora} with PyTorch: what adapters beside the models of make_goldens.py compute.

    python3 scripts/make_adapter_goldens.py [tests/goldens]

Each directory is an adapter in PEFT's layout beside tests/goldens/{gpt2,llama}, and holds
  adapter_config.json        rank 2 (4 for one module: rank_pattern), rsLoRA; _dora: use_dora
  adapter_model.safetensors  initial A and B, none of them zero, and with DoRA magnitudes, which are the lengths of
                             W's rows times numbers about 1; F32
  trained.safetensors        the same after the 10 steps, computed in float64, stored F32
  golden.json                of 10 steps on the batches of the model's golden.json, with its optimizer
    losses                   loss before each step in float64
    gradient_norms           global norm of the adapters' gradients before clipping, float64
The formulas are written out here, after Liu et al. (2024) and PEFT's tuners/lora/dora.py: the norm of a row of
W + f B A is detached, and biases are not scaled.
"""
import json
import math
import os
import sys

import torch
from torch import nn

import make_goldens
import safetensors_io
import torch_models

RANK, ALPHA, STEPS = 2, 3, make_goldens.STEPS
OTHER_RANK = {"gpt2": {"mlp.c_fc": 4}, "llama": {"up_proj": 4}}
PREFIX = "base_model.model."


class Adapted(nn.Module):
    """A linear layer or Conv1D with an adapter; W is [out, in]."""

    def __init__(self, inner, rank, is_dora, generator):
        super().__init__()
        self.inner, self.is_dora = inner, is_dora
        for parameter in inner.parameters():
            parameter.requires_grad_(False)
        out, width = self.base_weight().shape
        self.factor = ALPHA / math.sqrt(rank)

        def near(values):
            return nn.Parameter(values.float().double())

        self.lora_A = near(torch.randn(rank, width, generator=generator, dtype=torch.float64) * 0.3)
        self.lora_B = near(torch.randn(out, rank, generator=generator, dtype=torch.float64) * 0.2)
        if is_dora:
            scatter = 1 + 0.2 * torch.randn(out, generator=generator, dtype=torch.float64)
            self.magnitude = near(self.base_weight().norm(dim=1) * scatter)

    def base_weight(self):
        weight = self.inner.weight
        return weight.T if isinstance(self.inner, torch_models.Conv1D) else weight

    def forward(self, x):
        y = x @ self.base_weight().T + self.factor * (x @ self.lora_A.T) @ self.lora_B.T
        if self.is_dora:
            adapted = self.base_weight() + self.factor * self.lora_B.detach() @ self.lora_A.detach()
            y = y * (self.magnitude / adapted.norm(dim=1))
        return y if self.inner.bias is None else y + self.inner.bias

    def tensors(self, name):
        yield f"{PREFIX}{name}.lora_A.weight", self.lora_A
        yield f"{PREFIX}{name}.lora_B.weight", self.lora_B
        if self.is_dora:
            yield f"{PREFIX}{name}.lora_magnitude_vector", self.magnitude


def adapt(model, kind, is_dora, generator):
    """Replaces all linear layers but the head; the adapted ones by name."""
    linear = {name: module for name, module in model.named_modules()
              if isinstance(module, (nn.Linear, torch_models.Conv1D)) and name != "lm_head"}
    adapted = {}
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for name, module in linear.items():
        rank = next((r for end, r in OTHER_RANK[kind].items() if name.endswith("." + end)), RANK)
        parent, _, last = name.rpartition(".")
        adapted[name] = Adapted(module, rank, is_dora, generator)
        setattr(model.get_submodule(parent), last, adapted[name])
    return adapted


def arrays_of(adapted):
    return {key: tensor.detach().numpy().copy() for name, module in adapted.items() for key, tensor in module.tensors(name)}


def optimizer_of(model):
    """AdamW; magnitudes, which have one dimension, do not decay."""
    o = make_goldens.OPTIMIZER
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() >= 2], "weight_decay": o["weight_decay"]},
              {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=o["lr"], betas=(o["beta1"], o["beta2"]),
                             eps=o["eps"])


def train(model, batches):
    optimizer = optimizer_of(model)
    trained = [p for p in model.parameters() if p.requires_grad]
    losses, norms = [], []
    for batch in batches:
        optimizer.zero_grad()
        loss = torch_models.loss_of(model, torch.tensor(batch["tokens"]), torch.tensor(batch["targets"]))
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, make_goldens.OPTIMIZER["clip"]).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


def make(root, kind, is_dora):
    directory = os.path.join(root, f"{kind}_{'dora' if is_dora else 'lora'}")
    os.makedirs(directory, exist_ok=True)
    base = os.path.join(root, kind)
    model = torch_models.build(make_goldens.CONFIGS[kind])
    weights = safetensors_io.read_file(os.path.join(base, "model.safetensors"))
    model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
    model.double()
    adapted = adapt(model, kind, is_dora, torch.Generator().manual_seed(20240215))
    with open(os.path.join(base, "golden.json"), encoding="utf-8") as file:
        facts = json.load(file)
    initial = arrays_of(adapted)
    losses, norms = train(model, facts["batches"])
    safetensors_io.write_file(os.path.join(directory, "adapter_model.safetensors"), initial, "F32")
    safetensors_io.write_file(os.path.join(directory, "trained.safetensors"), arrays_of(adapted), "F32")
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": f"../{kind}", "r": RANK,
        "lora_alpha": ALPHA, "use_rslora": True, "use_dora": is_dora, "target_modules": "all-linear", "bias": "none",
        "fan_in_fan_out": kind == "gpt2", "rank_pattern": OTHER_RANK[kind], "alpha_pattern": {}, "modules_to_save": None,
    }
    golden = {"losses": losses, "gradient_norms": norms}
    for name, text in (("adapter_config.json", json.dumps(config, indent=2)), ("golden.json", json.dumps(golden))):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(text + "\n")
    print(f"{directory}: loss {losses[0]:.6f} -> {losses[-1]:.6f}, gradient norms {min(norms):.2f} to {max(norms):.2f}")


def main(argv):
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.normpath(argv[0] if argv else os.path.join(here, "..", "tests", "goldens"))
    torch.set_num_threads(1)
    for kind in make_goldens.CONFIGS:
        for is_dora in (False, True):
            make(root, kind, is_dora)


if __name__ == "__main__":
    main(sys.argv[1:])
