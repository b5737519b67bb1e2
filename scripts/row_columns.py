"""Columns of rows of published runs: other names of them, numbers as people write them, and what was measured."""

import re

# Other names of columns, after lower-casing and without what is no letter or digit.
ALIASES = {
    "n_gpus": "gpus numgpus ngpu gpucount numberofgpus worldsize devices",
    "hardware": "gpu device gputype accelerator system gpuname",
    "precision": "dtype datatype numerics",
    "seq_len": "seq seqlen seqlength sequencelength sequence contextlength maxlength",
    "vocab": "vocabsize vocabulary paddedvocabsize",
    "layers": "nlayers numlayers nlayer numberoflayers",
    "hidden": "hiddensize dmodel hiddendim embeddim width",
    "heads": "nheads numheads attentionheads numattentionheads nhead",
    "kv_heads": "nkvheads kvhead numquerygroups querygroups numkeyvalueheads",
    "ffn_hidden": "ffn dff ffnhiddensize intermediatesize ffnsize",
    "mlp": "activation mlptype activationfunction",
    "TP": "tensorparallel tensorparallelism tensormodelparallel tensormodelparallelsize tensormp tpsize",
    "PP": "pipelineparallel pipelineparallelism pipelinemodelparallelsize pipelinemp ppsize",
    "VPP": "vp interleave interleaving virtualpipeline virtualpipelinesize virtualstages",
    "CP": "contextparallel contextparallelism contextparallelsize cpsize",
    "DP": "dataparallel dataparallelism dataparallelsize dpsize",
    "EP": "expertparallel expertparallelism expertparallelsize",
    "micro_batch": "mbs microbatchsize microbatch",
    "local_batch": "localbatchsize batchpergpu perdevicebatch devicebatchsize",
    "global_batch": "gbs globalbatchsize totalbatch batchsize",
    "grad_accum": "ga gradientaccumulation gradaccumulation gradaccumsteps",
    "recompute": "activationcheckpointing ac activationrecompute recomputation checkpointing",
    "sharding": "zero zerostage zeros optimizersharding",
    "sequence_parallel": "sp sequenceparallelism",
    "async_tp": "asynctp tpcommoverlap tpoverlap",
    "experts": "numexperts nexperts",
    "tokens_per_s_per_gpu": "tokenssgpu tokenssecgpu toksecgpu throughputpergpu tokenspersecpergpu tokenspersecondpergpu tps wps tpspergpu wpspergpu tokpersgpu toksgpu",
    "tokens_per_s": "tokenss tokenssec tokenspersec tokenspersecond throughputtokenspers totaltokenspers",
    "step_time_s_derived": "steptime steptimes steps stepseconds iterationtime iterationtimes itertime itertimes "
                           "steptimesmedian steptimemedian steptimesmean steptimemean steptimeseconds iterationtimeseconds secondsperiteration timeperiteration measuredsteps measuredseconds",
    "step_time_ms": "stepms measuredms timems iterationtimemilliseconds iterationtimems itertimems msperstep msperiteration elapsedms",
    "metric_tflops_per_gpu": "tflopspergpu modeltflops modeltflopspergpu modeltflopspersecpergpu tflopsgpu modeltflopsecgpu "
                             "tflops achievedtflops teraflopspergpu",
    "tflops_definition": "flopsdefinition tflopsdef metricdefinition",
    "mfu_pct": "mfu mfupercent modelflopsutilization",
    "hfu_pct": "hfu hfupercent hardwareflopsutilization",
    "peak_memory_GiB": "memorygib peakmemgib peakmemorygib maxmemorygib memgib",
    "peak_memory_GB": "memorygb peakmemgb peakmemorygb maxmemorygb memgb",
    "model": "modelname modelsize arch architecture",
    "framework": "software stack codebase library",
    "row_id": "id row name",
}
NAMES = {alias: name for name, aliases in ALIASES.items() for alias in aliases.split()}
NAMES |= {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in ALIASES}
NOTHING = {"", "-", "--", "n/a", "na", "none", "null", "nan", "?", "unknown", "not stated", "unspecified"}
NUMBER = re.compile(r"[~≈]?\s*([+-]?\d[\d,_ ]*(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)\s*([kKMB]?)\b\s*(.*)")
SCALE = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9}


def named(row):
    """The row by the names of columns that plans ask for; what a file has under them already stays."""
    known = {key: value for key, value in row.items() if key and not isinstance(value, list)}
    known = {key.strip(): (value or "").strip() for key, value in known.items()}
    for key, value in list(known.items()):
        name = NAMES.get(re.sub(r"[^a-z0-9]", "", key.lower()))
        if name and value and not known.get(name):
            known[name] = value
    if known.get("metric") and known.get("value"):
        take_metric(known)
    return known


# Rows of one measurement each: metric, value and unit as columns. Of the first that both have.
METRICS = [(r"mfu", "mfu_pct"), (r"hfu", "hfu_pct"), (r"t(era)?flop", "metric_tflops_per_gpu"),
           (r"tok(en)?s?.*(gpu|device|chip)", "tokens_per_s_per_gpu"), (r"tok(en)?s?\b.*s", "tokens_per_s"),
           (r"\bgib\b", "peak_memory_GiB"), (r"\bgb\b", "peak_memory_GB"), (r"\bms\b|millisecond", "step_time_ms"),
           (r"(step|iteration).*\b(s|sec|seconds)\b", "step_time_s_derived")]


def take_metric(row):
    """Puts a value under the column of its metric and unit; what is not known is refused by name with the row."""
    text = re.sub(r"[_/]", " ", f"{row['metric']} {row.get('unit') or ''}".lower())
    name = next((name for pattern, name in METRICS if re.search(pattern, text)), None)
    if name is None:
        row["refused"] = f"metric '{row['metric']}' in unit '{row.get('unit') or ''}' is not known"
    elif not row.get(name):
        row[name] = row["value"]


def number(row, *names):
    """The first of these columns that has one; None where none has."""
    for name in names:
        text = (row.get(name) or "").strip()
        if text.lower() in NOTHING:
            continue
        found = NUMBER.fullmatch(text)
        if not found or re.match(r"[x*/^]|to\b|-", found[3]):
            raise ValueError(f"{name} '{text}' is no number")
        if name.endswith("_batch") and re.search(r"tok", found[3], re.IGNORECASE):
            raise ValueError(f"{name} '{text}' is in tokens: it is read in sequences")
        return float(re.sub(r"[,_ ]", "", found[1])) * SCALE[found[2]]
    return None


def count(row, *names):
    """A whole number of at least 1; 1 where a row has none."""
    found = number(row, *names)
    if found is None:
        return 1
    if found != int(found) or found < 0:
        raise ValueError(f"{names[0]} '{found:g}' is no whole number")
    return max(1, int(found))


def is_yes(text):
    return (text or "").strip().lower() in ("yes", "true", "1", "on", "y", "x", "enabled")


def is_no(text):
    return (text or "").strip().lower() in ("no", "false", "0", "off", "n", "none", "disabled")


def share(row, name):
    """A percentage, written as one or as a fraction."""
    found = number(row, name)
    return None if not found else found / 100 if found > 1.5 else found


MEASURES = ("metric_tflops_per_gpu", "tokens_per_s_per_gpu", "tokens_per_s", "step_time_s_derived", "step_s", "step_time_ms",
            "mfu_pct", "hfu_pct")


def has_step(row):
    """Whether the row says how fast the run was."""
    return any((row.get(name) or "").strip().lower() not in NOTHING for name in MEASURES)


def counted_flop(row, is_recomputed):
    """FLOP of a step as arXiv 2104.04473 (eq. 3) counts them: GPT, with full recompute or without."""
    b, s, l, h, v = (number(row, name) for name in ("global_batch", "seq_len", "layers", "hidden", "vocab"))
    return (96 if is_recomputed else 72) * b * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h))


def flop_of(row, found, is_recomputed):
    """FLOP of a step as the source of metric_tflops_per_gpu counts them."""
    said = (row.get("tflops_definition") or "").lower()
    model = found["model_flop_per_s_per_gpu"] * found["step_s"] * found["gpus"]  # PaLM: 6N + 12LCT a token
    if "sc21" in said:
        return counted_flop(row, is_recomputed)
    if re.search(r"causal|half of attention", said) and not re.search(r"non.?causal|not causal", said):
        tokens = found["global_batch"] * found["seq"]
        return model - 6 * number(row, "layers") * number(row, "hidden") * found["seq"] * tokens
    if re.search(r"hfu|hardware|recomput", said) and "model" not in said:
        return model * found["hfu"] / found["mfu"]
    return model


def step_seconds(row, found, is_recomputed):
    """What was measured of the step, in seconds: from seconds, tokens, FLOP/s or a share of the peak."""
    seconds = number(row, "step_time_s_derived", "step_s")
    milliseconds = number(row, "step_time_ms")
    each = number(row, "tokens_per_s_per_gpu")
    all_of_them = number(row, "tokens_per_s")
    rate = number(row, "metric_tflops_per_gpu")
    tokens = found["global_batch"] * found["seq"]
    if rate and "SC21" in (row.get("tflops_definition") or ""):
        return flop_of(row, found, is_recomputed) / (rate * 1e12 * found["gpus"])
    if each:
        return tokens / (each * found["gpus"])
    if all_of_them:
        return tokens / all_of_them
    if seconds:
        return seconds
    if milliseconds:
        return milliseconds / 1e3
    if rate:
        return flop_of(row, found, is_recomputed) / (rate * 1e12 * found["gpus"])
    for name, key in (("mfu_pct", "mfu"), ("hfu_pct", "hfu")):  # both by the dense peak of the dtype
        measured = share(row, name)
        if measured:
            return found["step_s"] * found[key] / measured
    return None


def memory_gib(row):
    gib = number(row, "peak_memory_GiB")
    return gib if gib else (number(row, "peak_memory_GB") or 0) * 1e9 / 2**30 or None
