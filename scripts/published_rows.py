"""Rows of published runs as options of `rooflm plan`; scripts/validate_plan says which columns they have."""

import re

from expert_rows import has_experts, model_of, split_of_experts
from row_columns import NOTHING, count, is_no, is_yes, number
from row_hardware import cluster_of, device_of


def parts_of(row):
    """Parts of the model that a stage has. Interleaved, and not said how far: two, torchtitan's default
    (pipelining_utils.py; Megatron-LM's tables say it)."""
    if count(row, "PP") == 1:
        return 1
    return count(row, "VPP") if number(row, "VPP") else 2 if "interleaved" in (row.get("schedule") or "").lower() else 1


def data_degree(row, others):
    """Data-parallel ranks: DP and FSDP of a row are the same ranks, or (HSDP) copies of groups that share; what a row
    does not say is what its GPUs leave. FSDP may be a yes."""
    copies = int(number(row, "DP") or 0)
    said = row.get("FSDP") or ""
    shards = 0 if is_yes(said) and said.strip() != "1" or is_no(said) else int(number(row, "FSDP") or 0)
    gpus = int(number(row, "n_gpus") or 0)
    for ranks in (copies * shards, copies, shards):
        if ranks and (not gpus or ranks * others == gpus):
            return ranks
    if not gpus:
        raise ValueError("the number of GPUs (n_gpus) is not said")
    if max(copies, shards) > 1:
        raise ValueError(f"{max(copies, shards)} data-parallel ranks x TP x PP x CP = {others} are not {gpus} GPUs")
    if gpus % others:
        raise ValueError(f"{gpus} GPUs are no multiple of TP x PP x CP = {others}")
    return gpus // others


def zero_of(row, pp):
    """FSDP is ZeRO 3; in a pipeline torchtitan gathers weights once in a step and reduces gradients after the last
    micro-batch (reshard_after_forward is off, parallelize_llama.py), which is ZeRO 1."""
    sharding = (row.get("sharding") or "").lower()
    stage = re.search(r"zero-?(\d)", sharding)
    if stage or re.fullmatch(r"[0-3](\.0)?|stage ?[0-3]", sharding):
        return int(stage[1] if stage else re.search(r"\d", sharding)[0])
    if "shard_grad_op" in sharding:  # FSDP's name for it
        return 2
    if re.search(r"dist\w*[ _-]?opt|optimizer[ _-](state|shard)|^os$", sharding):
        return 1
    said = (row.get("FSDP") or "").strip()
    if is_yes(said) and said != "1":
        return 1 if pp > 1 else 3
    if is_no(said) and said != "0":
        return 0
    if not sharding and framework_of(row) in ("megatron-bridge", "nemo-2024") and not (number(row, "FSDP") or 0) > 1:
        return 1  # the distributed optimizer of all of its recipes
    # One rank of FSDP shares nothing, but torchtitan shares weights among the ranks of context parallelism, too.
    shards, copies, cp = (number(row, name) or 0 for name in ("FSDP", "DP", "CP"))
    has_shards = shards > 1 or (shards == 1 and copies <= 1 and cp > 1)
    is_fsdp = has_shards or "fsdp" in sharding or "full_shard" in sharding or "hsdp" in sharding
    return (1 if pp > 1 else 3) if is_fsdp else 0


def has_short_ends(row):
    parts = count(row, "PP") * parts_of(row)
    return count(row, "layers") % parts != 0 and (count(row, "layers") + 2) % parts == 0


def layers_of(row):
    """As many as the fullest stage of a pipeline has, on all of them: the others wait for it."""
    parts = count(row, "PP") * parts_of(row)
    layers = count(row, "layers")
    return layers if has_short_ends(row) else -(-layers // parts) * parts


def overlaps_tensor_exchange(row):
    """Whether tensor-parallel ranks exchange rows beside their products. Recipes of NeMo and Megatron-Bridge do
    (tp_comm_overlap; scripts/performance), but on GB200 not before userbuffers knew NVLink of several nodes
    (TransformerEngine 2.2, NVIDIA/TransformerEngine#1470)."""
    said = row.get("async_tp") or ""
    if is_yes(said) or is_no(said):
        return is_yes(said)
    if re.search("model_table|weak_scaling|strong_scaling", row.get("source") or ""):
        return True  # of Megatron-LM's README, which names --tp-comm-overlap
    framework = framework_of(row)
    return framework == "megatron-bridge" or (framework == "nemo-2024" and not re.search("gb[23]00", row["hardware"].lower()))


def split_of(row):
    """The options that say how a row is split, and its micro-batch."""
    tp, pp, cp = (count(row, name) for name in ("TP", "PP", "CP"))
    dp = data_degree(row, tp * pp * cp)
    parts = parts_of(row)
    micro = number(row, "micro_batch")
    if micro is None:
        micro = number(row, "local_batch") or 1
        # Not said: as many micro-batches as there are pipeline ranks, however many parts each has
        # (build_pipeline_schedule in pipelining_utils.py of torchtitan).
        if pp > 1:
            micro = max(1, micro // pp)
    zero = zero_of(row, pp) if dp * cp > 1 else 0
    if zero == 1 and "lora" in (row.get("task") or "").lower():
        zero = 0  # moments of adapters are few
    options = {"--dp": dp, "--cp": cp, "--tp": tp, "--pp": pp, "--interleave": parts, "--batch": int(micro), "--zero": zero}
    if pp > 1 and has_short_ends(row):
        options["--short-ends"] = None
    if tp > 1 and overlaps_tensor_exchange(row):
        options["--async-tp"] = None
    if "gpipe" in (row.get("schedule") or "").lower() and pp > 1:
        options["--schedule"] = "gpipe"
    return options


# Names of frameworks in rows or their sources, and whose step stands for theirs.
FRAMEWORKS = [("rooflm", None), ("torchtune", "torchtune"), ("paddle", "paddle"), ("transformers", "transformers"), ("torchtitan", "torchtitan"), ("llm-foundry", "llm-foundry-2023"),
              ("megatron-bridge", "megatron-bridge"), ("nemo 24", "nemo-2024"), ("nemo 25.0", "nemo-2024"),
              ("dgxc-benchmarking", "nemo-2024"), ("nemo", "megatron-bridge"), ("megatron-deepspeed", "megatron-2021"),
              ("vtrain", "megatron-2021"), ("gpt-neox", "megatron-2021"), ("metaseq", "megatron-2021"),
              ("megatron", "megatron"), ("mcore", "megatron"), ("litgpt", "torch-eager")]
OWN_NAMES = re.compile(r"torch-(eager|compile)|megatron-202[12](-sp)?|nemo-2024|llm-foundry-202[34](-pure)?|torchtitan-2024(-eager)?")
# Without flash attention: runs on GPUs of before 2023 that do not name it.
OLD_DEVICES = re.compile(r"a100|a800|v100", re.IGNORECASE)


def megatron_of(row):
    """Megatron-LM by its age: with flash attention and TransformerEngine, or as the two papers ran it."""
    text = " ".join(row.get(name) or "" for name in ("source", "notes", "framework", "attention")).lower()
    if "2104.04473" in text or "SC21" in (row.get("tflops_definition") or ""):
        return "megatron-2021"
    if has_experts(row):  # which it has since Megatron-Core
        return "megatron"
    is_of_2022 = "2205.05198" in text
    if not is_of_2022 and (re.search(r"flash|transformer.?engine|core|\bte\b", text) or not OLD_DEVICES.search(row["hardware"])):
        return "megatron"
    shares_rows = is_yes(row.get("sequence_parallel")) or re.search(r"\+ ?s|sequence", (row.get("recompute") or "").lower()) or (
        not is_no(row.get("sequence_parallel")) and recompute_of(row) == "selective")
    return "megatron-2022-sp" if shares_rows and count(row, "TP") > 1 else "megatron-2022"


def framework_of(row):
    said = (row.get("framework") or "").lower()
    text = said or (row.get("source") or "").lower()
    is_compiled = is_yes(row.get("compile"))
    if "SC21" in (row.get("tflops_definition") or ""):  # older than flash attention and sequence parallelism
        return "megatron-2021"
    name = next((ours for part, ours in FRAMEWORKS if part in text), "")
    if not name and re.search("2104.04473|2205.05198|megatron", f"{row.get('source')} {row.get('model')} {row.get('notes')}".lower()):
        name = "megatron"  # its papers
    if name is None or OWN_NAMES.fullmatch(said):
        return said
    if name == "torchtitan":
        version = "torchtitan-2024" if "202412" in (row.get("source") or "") else "torchtitan"
        return version if is_compiled else "torchtitan-2024-eager"
    if name == "megatron" or (not name and not said and number(row, "metric_tflops_per_gpu")):
        return megatron_of(row)
    return name or ("torch-compile" if is_compiled else "torch-eager")


MIXTURES = re.compile(r"moe|mixtral|\b\d+x\d+b|deepseek.?v[23]|-a\d+b|_a\d+b|gpt.?oss|kimi|dbrx|grok|llama.?4", re.IGNORECASE)
OTHERS = re.compile(r"nemotron.?h|"
                    r"nemotron[-_ ]3([-_ ]|$)|mamba|jamba|zamba|rwkv|retnet|hyena|switch|\bt5\b|\bbert|\bvit\b|\bdit\b|diffusion|clip\b",
                      re.IGNORECASE)


def refuse_batch_of_tokens(row):
    """No run has a billion tokens in a step: that is a batch in tokens."""
    most = 1e9
    batch, length = number(row, "global_batch"), length_of(row)
    if batch and batch * length > most:
        raise ValueError(f"global_batch {batch:.0f} is read in sequences, of {length} tokens each: is it in tokens?")


def refuse_what_is_not_planned(row):
    if row.get("refused"):
        raise ValueError(row["refused"])
    for name in ("hardware", "precision", "layers", "hidden", "seq_len"):
        if (row.get(name) or "").strip().lower() in NOTHING:
            raise KeyError(name) if name not in row else ValueError(f"{name} is not said")
    model = row.get("model") or ""
    if OTHERS.search(model):
        raise ValueError("not a decoder whose layers are attention and feed-forward layers: not planned yet")
    if MIXTURES.search(model) and not has_experts(row):
        raise ValueError("a mixture of experts, of which the number of experts (experts) is not said")
    if "fp4" in row["precision"].lower():
        raise ValueError(f"{row['precision']}: products in 4 bits are not planned")
    if re.search(r"zero.?bubble|\bzb|dualpipe|chimera", (row.get("schedule") or "").lower()):
        raise ValueError(f"schedule {row['schedule']}: 1F1B, interleaved 1F1B and GPipe are planned")
    text = " ".join(row.get(name) or "" for name in ("optimizer", "model", "task", "sharding")).lower()
    if found := re.search(r"adafactor|\bsgd|muon|shampoo|\blion|paged|offload|infinity", text):
        raise ValueError(f"{found[0]}: AdamW on the devices is planned")


def dtype_of(row, device):
    name = row["precision"].lower()
    if name == "mixed" and device.startswith("v100"):
        return "fp16"
    kinds = [("bf16x6", "bf16x6"), ("fp8", "fp8"), ("f8", "fp8"), ("float8", "fp8"), ("e4m3", "fp8"), ("bf16", "bf16"), ("bfloat16", "bf16"), ("amp", "bf16"),
             ("fp16", "fp16"), ("float16", "fp16"), ("half", "fp16"), ("mixed", "bf16"),
             ("tf32", "tf32"), ("fp32", "fp32"), ("float32", "fp32")]
    found = next((kind for part, kind in kinds if part in name), None)
    if found is None:
        raise ValueError(f"precision '{row['precision']}': fp32, bf16x6, tf32, bf16, fp16 and fp8 are planned")
    return found


# What sources call what is computed again; of `selective` what frameworks mean by it.
RECOMPUTE = [(r"selective ?\(?op|op.?sac|sac|per.?op|every.?other", "every-other"), (r"selective|core.?att|attention", "selective"),
             (r"full|block|uniform|yes|true|on$|1$|all|checkpoint|ckpt|recompute", "full"), (r"none|no|false|0|off|null|n/?a|-+$|$", "none")]


def recompute_of(row):
    text = (row.get("recompute") or "none").strip().lower()
    if re.search(r"selective ?\(?\d|\b\d+ of \d|partial|layers? \d", text):
        raise ValueError(f"recompute '{row['recompute']}': of some layers is not planned")
    found = next((kind for start, kind in RECOMPUTE if re.match(start, text)), None)
    if found is None:
        raise ValueError(f"recompute '{row['recompute']}': none, selective and full are planned")
    is_torchtitan = "torchtitan" in (row.get("framework") or row.get("source") or "").lower()
    return "every-other" if found == "selective" and is_torchtitan else found


# Adapters that recipes of a framework train, where a row does not say them: LitGPT's table of resources; torchtune's
# recipes/configs, *_lora*.yaml; NeMo's attention_qkv.
ADAPTERS = [("litgpt", "8,targets=q,v"), ("torchtune", "8,targets=q,v,o,gate,up,down"), ("nemo", "32,targets=q,k,v"),
            ("", "8,targets=q,v")]


def states_of(row):
    """Options of adapters, of frozen weights and of narrow moments."""
    text = " ".join(row.get(name) or "" for name in ("optimizer", "task", "sharding", "model")).lower()
    options = {}
    if "lora" in text:
        framework = " ".join(row.get(name) or "" for name in ("framework", "source")).lower()
        options["--lora"] = next(adapters for part, adapters in ADAPTERS if part in framework)
    if "qlora" in text:
        options["--base"] = "nf4"
    if re.search(r"8.?bit adam", text):
        options["--states"] = "8bit"
    return options


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
        unit = 16 * count(row, "TP")
        ffn = round(ffn * 2 / 3 / unit) * unit
    vocab = number(row, "vocab")
    if vocab is None:
        raise ValueError("the vocabulary (vocab) is not said")
    return {"--layers": layers_of(row), "--heads": heads, "--kv-heads": int(number(row, "kv_heads") or heads),
            "--d-model": hidden, "--d-ff": ffn, "--vocab": int(vocab)}


def notes_of(row):
    """What a row has and its plan has not."""
    notes = []
    sharding = (row.get("sharding") or "").lower()
    framework = framework_of(row)
    if "hsdp" in sharding or "hybrid_shard" in sharding:
        notes.append("HSDP is planned as FSDP over all ranks")
    if layers_of(row) != count(row, "layers"):
        notes.append(f"planned with {layers_of(row)} layers: each stage as many as the fullest")
    if is_ungated_llama(row):
        notes.append("two products of its feed-forward layers are planned as three of as many weights")
    if "mx" in row["precision"].lower():
        notes.append("MXFP8 is planned as fp8 with one scale a tensor")
    if re.search(r"jax|maxtext|xla|mindspore|llm\.c|nanotron|colossal|levanter",
                 (row.get("framework") or row.get("source") or "").lower()):
        notes.append("its framework has no profile: planned as PyTorch")
    has_rows = not framework.startswith("megatron-202") or framework.endswith("-sp")
    if count(row, "TP") > 1 and has_rows and is_no(row.get("sequence_parallel")):
        notes.append("planned with sequence parallelism, which it has not")
    if framework.startswith("megatron-202") and not re.search("2104.04473|2205.05198|SC21", str(row.values())):
        notes.append("planned without flash attention, as Megatron-LM was before 2023")
    return "; ".join(notes)


def length_of(row):
    text = row["seq_len"].strip().lower()
    return int(text[:-1]) * 1024 if re.fullmatch(r"\d+k", text) else int(number(row, "seq_len"))


def open_micro_batches(row):
    """Where a row does not say its micro-batch: those that its global batch allows, one of which its authors chose."""
    if any(number(row, name) for name in ("micro_batch", "local_batch", "grad_accum")):
        return []
    batch = number(row, "global_batch")
    if not batch:
        return []
    ranks = data_degree(row, count(row, "TP") * count(row, "PP") * count(row, "CP"))
    return [micro for micro in (1, 2, 4, 8, 16) if batch % (ranks * micro) == 0]


def command_of(row, binary):
    refuse_what_is_not_planned(row)
    refuse_batch_of_tokens(row)
    device = device_of(row["hardware"])
    if device is None:
        raise ValueError(f"no device of the catalog is '{row['hardware']}'")
    split = split_of(row)
    dp, micro = split["--dp"], split["--batch"]
    each = number(row, "local_batch") or micro * (number(row, "grad_accum") or 1)
    batch = number(row, "global_batch") or each * dp
    sizes = sizes_of(row)
    if has_experts(row):
        model = {"--model": model_of(row, sizes), **split_of_experts(row)}
    else:
        model = {"--model": "small", "--arch": arch_of(row), **sizes}
    values = {**model, "--seq": length_of(row),
              "--dtype": dtype_of(row, device), "--device": device, **cluster_of(row), "--framework": framework_of(row), **split, **states_of(row),
              "--global-batch": int(batch), "--recompute": recompute_of(row), "--format": "json"}
    words = [str(word) for pair in values.items() for word in pair if word is not None]
    return [binary, "plan", *words, *(row.get("options") or "").split()]
