"""Rows of published inference as options of `rooflm plan --phase`; columns: model sizes as of training, weights, kv_cache,
phase (decode, prefill or serving), batch, input_tokens, output_tokens, TP, engine, tokens_per_s."""

import re

from published_rows import arch_of
from row_columns import count, number
from row_hardware import device_of

# Engines of rows and those of data/engines.json.
ENGINES = [("tensorrt", "tensorrt-llm"), ("trt", "tensorrt-llm"), ("gpt-fast", "gpt-fast"), ("torchao", "gpt-fast"),
           ("vllm", "vllm"), ("sglang", "vllm"), ("transformers", "transformers"), ("rooflm", "rooflm")]


def is_inference(row):
    return bool(row.get("engine")) and bool(re.search("decode|prefill|serv|generat", row.get("phase") or ""))


def format_of(text):
    """"int4 g32" is int4:32; halves of any kind are stored as bf16 is."""
    name = (text or "bf16").strip().lower()
    if re.fullmatch(r"bf16|fp16|bfloat16|float16|half", name):
        return "bf16"
    group = re.fullmatch(r"(int4|nf4)[ -]*(?:g|wo-?|group )?(\d+)", name)
    return f"{group[1]}:{group[2]}" if group else {"float8": "fp8", "e4m3": "fp8", "int8wo": "int8"}.get(name, name)


def engine_of(row):
    name = row["engine"].lower()
    found = next((ours for part, ours in ENGINES if part in name), None)
    if found is None:
        raise ValueError(f"engine '{row['engine']}' has no profile")
    return found


def texts_of(row):
    """At once; None for as many as fit."""
    found = re.match(r"\d+", (row.get("batch") or "").strip())
    return int(found[0]) if found else None


def rate_name(row):
    """What is compared of a row."""
    return "tokens/s of one text" if texts_of(row) == 1 and "decode" in row["phase"] else "tokens/s"


def inference_command(row, binary):
    if count(row, "PP") > 1:
        raise ValueError("PP: pipelines of inference are not planned")
    device = device_of(row["hardware"])
    if device is None:
        raise ValueError(f"no device of the catalog is '{row['hardware']}'")
    phase = next(ours for part, ours in (("serv", "serve"), ("prefill", "prefill"), ("", "decode")) if part in row["phase"])
    prompt, answer = (int(number(row, name) or 0) for name in ("input_tokens", "output_tokens"))
    heads = int(number(row, "heads"))
    values = {"--model": "small", "--arch": arch_of(row), "--layers": int(number(row, "layers")), "--heads": heads,
              "--kv-heads": int(number(row, "kv_heads") or heads), "--d-model": int(number(row, "hidden")),
              "--d-ff": int(number(row, "ffn_hidden")), "--vocab": int(number(row, "vocab")), "--device": device,
              "--framework": engine_of(row), "--phase": phase, "--weights": format_of(row.get("weights")),
              "--kv-cache": format_of(row.get("kv_cache")), "--tp": count(row, "TP"), "--format": "json"}
    if phase == "serve":
        values |= {"--seq": prompt, "--output-len": answer}
        if texts := texts_of(row):
            values["--concurrency"] = texts
    else:
        # The mean length while the answer grows; of what is not said a few hundred tokens, which cost little.
        mean = max(2, prompt + answer // 2) if prompt + answer > 0 else 128
        values |= {"--seq": mean if phase == "decode" else prompt, "--batch": texts_of(row) or 1}
    return [binary, "plan", *(str(word) for pair in values.items() for word in pair)]
