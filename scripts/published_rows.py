"""Rows of published runs as options of `rooflm plan`; scripts/validate_plan says which columns they have."""

import re


DEVICES = [("h100 96gb", "h100-sxm-96gb"), ("h100 nvl", "h100-nvl"), ("h100 pcie", "h100-pcie"), ("h100", "h100-sxm"),
           ("h800", "h800-sxm"), ("gh200 144", "gh200-144gb"), ("gh200", "gh200-96gb"), ("h200", "h200"), ("h20", "h20"),
           ("gb200", "gb200"), ("gb300", "gb300"), ("b200", "b200"), ("b300", "b300"), ("5090", "rtx-5090"),
           ("4090", "rtx-4090"), ("3090", "rtx-3090"), ("l40s", "l40s"), ("mi300x", "mi300x"), ("mi250x", "mi250x"),
           ("v100", "v100-sxm")]

# 40 GB of memory: no end of a larger number, no rate ("40 Gb/s"); "A100-SXM4-40" says it, too.
FORTY_GB = re.compile(r"(?<![\d.])40 ?gi?b?\b(?!/s)|a100(?: sxm\d?| pcie)? 40 ?(?:$|[(,])")


def device_of(hardware):
    """The key of the catalog for what a row calls its hardware."""
    name = re.sub(r"[-_]", " ", hardware.lower())
    if "a800" in name:
        return "a800-sxm"
    if "a100" in name:
        form = "pcie" if "pcie" in name else "sxm"
        return f"a100-{form}-40gb" if FORTY_GB.search(name) else "a100-pcie-80gb" if form == "pcie" else "a100-sxm"
    return next((key for part, key in DEVICES if part in name), None)


def number(row, *names):
    for name in names:
        text = (row.get(name) or "").strip()
        if text:
            return float(text)
    return None


def parts_of(row):
    """Parts of the model that a stage has. Interleaved, and not said how far: two, torchtitan's default
    (pipelining_utils.py; Megatron-LM's tables say it)."""
    if (number(row, "PP") or 1) == 1:
        return 1
    said = number(row, "VPP")
    return int(said) if said else 2 if "interleaved" in (row.get("schedule") or "").lower() else 1


def data_degree(row, others):
    """Data-parallel ranks: DP and FSDP of a row are the same ranks, or (HSDP) copies of groups that share; what a row
    does not say is what its GPUs leave."""
    copies, shards = (int(number(row, name) or 0) for name in ("DP", "FSDP"))
    gpus = int(number(row, "n_gpus") or 0)
    if copies and shards and copies * shards * others == gpus:
        return copies * shards
    if copies or shards:
        return copies or shards
    if gpus % others:
        raise ValueError(f"{gpus} GPUs are no multiple of TP x PP x CP = {others}")
    return max(1, gpus // others)


def zero_of(row, pp):
    """FSDP is ZeRO 3; in a pipeline torchtitan gathers weights once in a step and reduces gradients after the last
    micro-batch (reshard_after_forward is off, parallelize_llama.py), which is ZeRO 1."""
    sharding = (row.get("sharding") or "").lower()
    stage = re.search(r"zero-?(\d)", sharding)
    if stage:
        return int(stage[1])
    if "shard_grad_op" in sharding:  # FSDP's name for it
        return 2
    if "distributed optimizer" in sharding or "dist-opt" in sharding:
        return 1
    # One rank of FSDP shares nothing, but torchtitan shares weights among the ranks of context parallelism, too.
    shards, copies, cp = (number(row, name) or 0 for name in ("FSDP", "DP", "CP"))
    has_shards = shards > 1 or (shards == 1 and copies <= 1 and cp > 1)
    is_fsdp = has_shards or "fsdp" in sharding or "full_shard" in sharding or "hsdp" in sharding
    return (1 if pp > 1 else 3) if is_fsdp else 0


def has_short_ends(row):
    parts = int(number(row, "PP") or 1) * parts_of(row)
    return int(row["layers"]) % parts != 0 and (int(row["layers"]) + 2) % parts == 0


def layers_of(row):
    """As many as the fullest stage of a pipeline has, on all of them: the others wait for it."""
    parts = int(number(row, "PP") or 1) * parts_of(row)
    layers = int(row["layers"])
    return layers if has_short_ends(row) else -(-layers // parts) * parts


def split_of(row):
    """The options that say how a row is split, and its micro-batch."""
    tp, pp, cp = (int(number(row, name) or 1) for name in ("TP", "PP", "CP"))
    dp = data_degree(row, tp * pp * cp)
    parts = parts_of(row)
    micro = number(row, "micro_batch")
    if micro is None:
        micro = number(row, "local_batch") or 1
        # Not said: as many micro-batches as there are pipeline ranks, however many parts each has
        # (build_pipeline_schedule in pipelining_utils.py of torchtitan).
        if pp > 1:
            micro = max(1, micro // pp)
    options = {"--dp": dp, "--cp": cp, "--tp": tp, "--pp": pp, "--interleave": parts, "--batch": int(micro),
               "--zero": zero_of(row, pp) if dp * cp > 1 else 0}
    if pp > 1 and has_short_ends(row):
        options["--short-ends"] = None
    if (row.get("async_tp") or "").lower() == "yes":
        options["--async-tp"] = None
    return options


# Names of frameworks in rows or their sources, and whose step stands for theirs.
FRAMEWORKS = [("rooflm", None), ("torchtitan", "torchtitan"), ("llm-foundry", "llm-foundry-2023"),
              ("megatron-bridge", "megatron-bridge"), ("nemo", "megatron-bridge"), ("megatron", "megatron"),
              ("mcore", "megatron")]


def framework_of(row):
    said = (row.get("framework") or "").lower()
    text = said or (row.get("source") or "").lower()
    is_compiled = (row.get("compile") or "").lower() in ("yes", "true", "1")
    if "SC21" in (row.get("tflops_definition") or ""):  # older than flash attention and sequence parallelism
        return "megatron-2021"
    name = next((ours for part, ours in FRAMEWORKS if part in text), "")
    if name is None or said in ("torch-eager", "torch-compile", "megatron-2021", "megatron-2022", "megatron-2022-sp") or said.startswith("llm-foundry-202") or (
            said.startswith("torchtitan-2024")):
        return said
    if name == "torchtitan":
        version = "torchtitan-2024" if "202412" in (row.get("source") or "") else "torchtitan"
        return version if is_compiled else "torchtitan-2024-eager"
    if not name and "metric_tflops_per_gpu" in row and not said:
        return "megatron"
    return name or ("torch-compile" if is_compiled else "torch-eager")


MIXTURES = re.compile(r"moe|mixtral|\b\d+x\d+b|deepseek.?v[23]|-a\d+b|_a\d+b|gpt.?oss|kimi|dbrx|grok|llama.?4|nemotron.?h|mamba",
                      re.IGNORECASE)


def refuse_what_is_not_planned(row):
    experts = number(row, "experts", "num_experts", "EP") or 1
    if experts > 1 or MIXTURES.search(row.get("model") or ""):
        raise ValueError("a mixture of experts, or not a transformer of dense layers: not planned yet")
    if "fp4" in row["precision"].lower():
        raise ValueError(f"{row['precision']}: products in 4 bits are not planned")
    if re.search(r"zero.?bubble|\bzb|dualpipe|chimera", (row.get("schedule") or "").lower()):
        raise ValueError(f"schedule {row['schedule']}: 1F1B, interleaved 1F1B and GPipe are planned")
    if re.search(r"adafactor|sgd|muon|shampoo|lora", (row.get("optimizer") or "").lower()):
        raise ValueError(f"optimizer {row['optimizer']}: AdamW is planned")


def dtype_of(row, device):
    name = row["precision"].lower()
    if name == "mixed" and device.startswith("v100"):
        return "fp16"
    kinds = [("fp8", "fp8"), ("float8", "fp8"), ("e4m3", "fp8"), ("bf16", "bf16"), ("bfloat16", "bf16"),
             ("fp16", "fp16"), ("float16", "fp16"), ("half", "fp16"), ("mixed", "bf16"),
             ("tf32", "tf32"), ("fp32", "fp32"), ("float32", "fp32")]
    found = next((kind for part, kind in kinds if part in name), None)
    if found is None:
        raise ValueError(f"precision '{row['precision']}': fp32, tf32, bf16, fp16 and fp8 are planned")
    return found


def recompute_of(row):
    text = (row.get("recompute") or "none").lower()
    if text.startswith("selective(op"):
        return "every-other"
    kinds = [("selective", "selective"), ("full", "full"), ("block", "full"), ("uniform", "full"), ("yes", "full"),
             ("true", "full"), ("checkpoint", "full"), ("none", "none"), ("no", "none"), ("false", "none"), ("0", "none")]
    found = next((kind for start, kind in kinds if text.startswith(start)), None)
    if found is None:
        raise ValueError(f"recompute '{row['recompute']}': none, selective and full are planned")
    return found


def has_gate(row):
    return any(kind in (row.get("mlp") or "").lower() for kind in ("glu", "silu", "gated"))


def is_ungated_llama(row):
    """Fewer key/value heads than heads, but two products in the feed-forward layer."""
    return not has_gate(row) and (number(row, "kv_heads") or number(row, "heads")) != number(row, "heads")


def arch_of(row):
    return "llama" if has_gate(row) or is_ungated_llama(row) else "gpt2"


def sizes_of(row):
    """What a row leaves open is what most models of its kind have."""
    hidden = int(number(row, "hidden"))
    heads = int(number(row, "heads") or max(1, hidden // 128))
    ffn = number(row, "ffn_hidden")
    if ffn is None and has_gate(row):
        raise ValueError("the width of the feed-forward layers (ffn_hidden) is not said")
    ffn = int(ffn or 4 * hidden)
    if is_ungated_llama(row):  # as many weights in three products
        unit = 16 * int(number(row, "TP") or 1)
        ffn = round(ffn * 2 / 3 / unit) * unit
    vocab = number(row, "vocab")
    if vocab is None:
        raise ValueError("the vocabulary (vocab) is not said")
    return {"--layers": layers_of(row), "--heads": heads, "--kv-heads": int(number(row, "kv_heads") or heads),
            "--d-model": hidden, "--d-ff": ffn, "--vocab": int(vocab)}


RATE = re.compile(r"(\d+(?:\.\d+)?) ?[Gg]([Bb](?:its?)?)(?i:/s|ps)(?i:[a-z0-9 ]* per gpu)")
NETWORKS = re.compile(r"rdma|infiniband|\bib\b|roce|ethernet|network|\bnics?\b|\bcx|connectx|\befa\b|[hnx]dr", re.IGNORECASE)
LINKS_OF_NODES = re.compile(r"nvlink|nvswitch|xgmi|infinity fabric", re.IGNORECASE)


def network_of(hardware):
    """Bytes per second between nodes for each GPU, in GB: GB/s are bytes, Gb/s and Gbit/s bits. None where only links
    inside of a node are said."""
    for clause in re.split(r"[,;+&]| / |\band\b|\bwith\b", hardware):
        start = 0
        for rate in RATE.finditer(clause):
            words = clause[start:rate.end()]
            start = rate.end()
            if NETWORKS.search(words) or not LINKS_OF_NODES.search(words):
                return float(rate[1]) / (1 if rate[2] == "B" else 8)
    return None


def cluster_of(row):
    """Devices of a node and bytes per second between nodes, where the hardware says them."""
    options = {}
    node = re.search(r"\b(\d+) ?(?:gpus?)? ?(?:/|per) ?node", row["hardware"].lower())
    if node:
        options["--per-node"] = int(node[1])
    network = network_of(row["hardware"])
    if network:
        options["--network"] = f"{network:g}GB"
    return options


def notes_of(row):
    """What a row has and its plan has not."""
    notes = []
    sharding = (row.get("sharding") or "").lower()
    if "hsdp" in sharding or "hybrid_shard" in sharding:
        notes.append("HSDP is planned as FSDP over all ranks")
    if layers_of(row) != int(row["layers"]):
        notes.append(f"planned with {layers_of(row)} layers: each stage as many as the fullest")
    if is_ungated_llama(row):
        notes.append("two products of its feed-forward layers are planned as three of as many weights")
    if "mx" in row["precision"].lower():
        notes.append("MXFP8 is planned as fp8 with one scale a tensor")
    if re.search(r"jax|maxtext|xla|paddle|mindspore", (row.get("framework") or row.get("source") or "").lower()):
        notes.append("its framework has no profile: planned as PyTorch")
    return "; ".join(notes)


def command_of(row, binary):
    refuse_what_is_not_planned(row)
    device = device_of(row["hardware"])
    if device is None:
        raise ValueError(f"no device of the catalog is '{row['hardware']}'")
    split = split_of(row)
    dp, micro = split["--dp"], split["--batch"]
    each = number(row, "local_batch") or micro * (number(row, "grad_accum", "GA") or 1)
    batch = number(row, "global_batch") or each * dp
    values = {"--model": "small", "--arch": arch_of(row), **sizes_of(row), "--seq": int(number(row, "seq_len")),
              "--dtype": dtype_of(row, device), "--device": device, **cluster_of(row), "--framework": framework_of(row), **split,
              "--global-batch": int(batch), "--recompute": recompute_of(row), "--format": "json"}
    words = [str(word) for pair in values.items() for word in pair if word is not None]
    return [binary, "plan", *words, *(row.get("options") or "").split()]
