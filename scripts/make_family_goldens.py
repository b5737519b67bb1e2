#!/usr/bin/env python3
"""Makes tests/model/goldens/NAME.json with transformers 5: what a small model of each family computes.

    python3 scripts/make_family_goldens.py [tests/model/goldens [NAME...]]

Each file holds
  config      config.json as transformers writes it
  tokens      [B][T + 1]: inputs are the first T of a row, targets the last T
  tensors     names and shapes as transformers stores them; weights are made, not stored: see `values`; an
              exact one is `around`
  loss        mean cross-entropy in nats, fp32, attention of matmuls and softmax; null: not made
  logits      [B][8]: of the last position, the first 8
  gradients   by name and in the layout of the file: Euclidean norm and the first 4 elements
"""
import json
import math
import os
import sys
import tempfile

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file

BATCH, SEQ, VOCAB = 2, 20, 96
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48, "max_position_embeddings": 64,
    "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
}
EXPERTS = {"num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8, "num_experts_per_tok": 2,
           "moe_intermediate_size": 24, "moe_num_experts": 8, "moe_k": 2}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6,
          "n_group": 2, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4,
          "head_dim": 4}
ABSENT = object()  # a size that a family derives from others
ALTERNATING = ["sliding_attention", "full_attention"]
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
# Name of the golden: (model_type, what differs from SIZES).
FAMILIES = {
    "apertus": ("apertus", {}),
    "arcee": ("arcee", {}),
    "bloom": ("bloom", {}),
    "codegen": ("codegen", {"rotary_dim": 4, "n_ctx": 64}),
    "cohere": ("cohere", {}),
    "cohere2": ("cohere2", {"sliding_window": 8, "layer_types": ALTERNATING}),
    "deepseek_v2": ("deepseek_v2", {**EXPERTS, **LATENT}),
    "deepseek_v3": ("deepseek_v3", {**EXPERTS, **LATENT}),
    "ernie4_5": ("ernie4_5", {}),
    "exaone4": ("exaone4", {"sliding_window": 8, "layer_types": ALTERNATING}),
    "falcon": ("falcon", {"num_kv_heads": 1, "head_dim": ABSENT}),
    "falcon_new": ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "head_dim": ABSENT}),
    "falcon_alibi": ("falcon", {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True, "head_dim": ABSENT}),
    "gemma": ("gemma", {}),
    "gemma2": ("gemma2", {"sliding_window": 8, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 5.0,
                          "final_logit_softcapping": 3.0, "layer_types": ALTERNATING}),
    "gemma3": ("gemma3_text", {"sliding_window": 8, "query_pre_attn_scalar": 16, "layer_types": ALTERNATING}),
    "glm": ("glm", {}),
    "glm4": ("glm4", {}),
    "glm4_moe": ("glm4_moe", {**EXPERTS, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}),
    "gpt2": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 48}),
    "gpt_bigcode": ("gpt_bigcode", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 48}),
    "gpt_neo": ("gpt_neo", {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 8, "num_heads": 4}),
    "gpt_neox": ("gpt_neox", {}),
    "gpt_neox_serial": ("gpt_neox", {"use_parallel_residual": False, "rotary_pct": 1.0}),
    "gpt_oss": ("gpt_oss", {**EXPERTS, "sliding_window": 8, "layer_types": ALTERNATING, "rope_parameters": {
        **YARN, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}}),
    "gptj": ("gptj", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 48, "rotary_dim": 4}),
    "granite": ("granite", {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "logits_scaling": 2.0, "attention_multiplier": 0.2}),
    "granitemoe": ("granitemoe", {**EXPERTS, "embedding_multiplier": 3.0, "residual_multiplier": 0.5, "logits_scaling": 2.0,
                                  "attention_multiplier": 0.2}),
    "helium": ("helium", {}),
    "hunyuan": ("hunyuan_v1_dense", {}),
    "llama": ("llama", {}),
    "llama_scaled": ("llama", {"rope_parameters": LLAMA3}),
    "llama_yarn": ("llama", {"rope_parameters": YARN, "attention_bias": True, "mlp_bias": True}),
    "llama4": ("llama4_text", {**EXPERTS, "intermediate_size_mlp": 48, "attention_chunk_size": 8, "no_rope_layers": [1, 0],
                               "num_experts_per_tok": 1, "interleave_moe_layer_step": 1}),
    "minimax_m2": ("minimax_m2", EXPERTS),
    "ministral": ("ministral", {"sliding_window": 8, "layer_types": ALTERNATING}),
    "mistral": ("mistral", {"sliding_window": 8}),
    "mixtral": ("mixtral", EXPERTS),
    "mpt": ("mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64}),
    "nemotron": ("nemotron", {}),
    "olmo": ("olmo", {}),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo3", {"sliding_window": 8, "layer_types": ALTERNATING}),
    "olmoe": ("olmoe", EXPERTS),
    "opt": ("opt", {"word_embed_proj_dim": 32, "ffn_dim": 48}),
    "persimmon": ("persimmon", {"num_key_value_heads": 4}),
    "phi": ("phi", {"num_key_value_heads": 4}),
    "phi3": ("phi3", {"sliding_window": 8}),
    "phimoe": ("phimoe", EXPERTS),
    "qwen2": ("qwen2", {}),
    "qwen2_moe": ("qwen2_moe", {**EXPERTS, "shared_expert_intermediate_size": 40}),
    "qwen3": ("qwen3", {}),
    "qwen3_moe": ("qwen3_moe", EXPERTS),
    "seed_oss": ("seed_oss", {}),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 0]}),
    "stablelm": ("stablelm", {"num_key_value_heads": 4}),
    "starcoder2": ("starcoder2", {"sliding_window": 8}),
}
GOLDEN_RATIO = 0x9E3779B97F4A7C15


def name_hash(name):
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def values(name, shape, around):
    """around + [-1/8, 1/8) from the name and each element's number: splitmix64, the upper 16 bits / 2^18."""
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(name_hash(name)) + numpy.arange(math.prod(shape), dtype=numpy.uint64) * numpy.uint64(GOLDEN_RATIO)
        z += numpy.uint64(GOLDEN_RATIO)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z ^= z >> numpy.uint64(31)
    return torch.from_numpy((around + ((z >> numpy.uint64(48)).astype(numpy.int64) - 32768) / 2.0**18).astype(numpy.float32)).reshape(shape)


def stored(directory):
    """Tensors of the files of a directory by name."""
    tensors = {}
    for file in sorted(os.listdir(directory)):
        if file.endswith(".safetensors"):
            tensors.update(load_file(os.path.join(directory, file)))
    return tensors


def golden(model_type, changes):
    default = transformers.AutoConfig.for_model(model_type)
    sizes = {key: value for key, value in {**SIZES, **changes}.items()
             if value is not ABSENT and (key in changes or hasattr(default, key))}
    for key in EXPERTS:  # what another family calls it is no key of this one
        if not hasattr(default, key):
            sizes.pop(key, None)
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    for key, value in list(vars(config).items()):  # what training draws at random
        if value and any(part in key for part in ("dropout", "pdrop", "jitter")):
            setattr(config, key, 0.0)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        first = stored(directory)
        tensors = [{"name": name, "shape": list(tensor.shape), "around": int(bool((tensor == 1).all()))}
                   for name, tensor in sorted(first.items())]
        for t in tensors:
            if t["name"].endswith((".act_fn.beta", ".act_fn.eps")):  # constants that are stored
                t.update(around=first[t["name"]].item(), exact=True)
        made = {t["name"]: first[t["name"]].float() if "exact" in t else values(t["name"], t["shape"], t["around"])
                for t in tensors}
        for file in os.listdir(directory):
            if "safetensors" in file:
                os.remove(os.path.join(directory, file))
        save_file(made, os.path.join(directory, "model.safetensors"), {"format": "pt"})
        with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
            written = json.load(file)
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            directory, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
        wrong = {key: sorted(value) for key, value in info.items() if value}
        if wrong:
            raise ValueError(f"not all tensors were taken: {wrong}")
        model.train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        tokens = torch.tensor([[(7 * i * i + 3 * i + 11 * b) % (VOCAB - 3) + 3 for i in range(SEQ + 1)] for b in range(BATCH)])
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).double(), tokens[:, 1:].reshape(-1))
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
        out = os.path.join(directory, "gradients")
        model.save_pretrained(out)
        gradients = stored(out)
    trained = {t["name"] for t in tensors if t["name"] in gradients and "exact" not in t}
    return {
        "transformers": transformers.__version__, "config": written, "tokens": tokens.tolist(), "tensors": tensors,
        "loss": loss.item(), "logits": logits[:, -1, :8].tolist(),
        "gradients": {name: {"norm": gradients[name].double().norm().item(), "first": gradients[name].flatten()[:4].tolist()}
                      for name in sorted(trained)},
    }


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "tests/model/goldens"
    names = sys.argv[2:] or list(FAMILIES)
    os.makedirs(out, exist_ok=True)
    for name in names:
        try:
            made = golden(*FAMILIES[name])
        except Exception as error:  # a family of another release of transformers
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:300] if str(error) else ''}", flush=True)
            continue
        with open(os.path.join(out, f"{name}.json"), "w", encoding="utf-8") as file:
            json.dump(made, file, indent=None, separators=(",", ":"))
            file.write("\n")
        print(f"{name}: loss {made['loss']:.6f}, {len(made['tensors'])} tensors", flush=True)


if __name__ == "__main__":
    main()
