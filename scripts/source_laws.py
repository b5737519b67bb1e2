"""What must be true of rows of docs/sources.md: figures of the texts that follow from sizes alone, or from other figures of the
same table. Each takes the rows of a table and says whether they obey it. check_sources runs them."""
import math
import re

BATCH, SEQ, WIDTH, LAYERS = 4, 64, 128, 2  # of the run "formulas"


def near(found, wanted, share=1e-6):
    return found is not None and abs(found - wanted) <= share * max(abs(wanted), 1e-30)


def sums_to_one(rows, share, *keys):
    """By group, the shares add up to 1."""
    sums = {}
    for row in rows:
        if row.get(share) is not None:
            group = tuple(row.get(key) for key in keys)
            sums[group] = sums.get(group, 0) + row[share]
    return sums and all(near(total, 1, 1e-3) for total in sums.values())


def by(rows, *keys):
    return {tuple(row.get(key) for key in keys) if len(keys) > 1 else row.get(keys[0]): row for row in rows}


def terms(text):
    """"2 x 4 + 1" as a number."""
    return sum(math.prod(int(factor) for factor in term.split("x")) for term in text.split("+"))


def has_formats_of_r(rows):
    """1e-8 is nothing in fp16 and something in bf16; 49152 x 12288 numbers of 4 bytes are 2304 MiB."""
    found = by(rows, "format")
    return (found["fp16"]["underflow_below"] > 1e-8 > found["bf16"]["underflow_below"]
            and found["fp16"]["largest"] == 65504 and found["fp8 e4m3"]["largest"] == 448 and found["fp8 e5m2"]["largest"] == 57344
            and found["fp32"]["matrix"] == 2304 * 1024 ** 2 and found["bf16"]["matrix"] == found["fp16"]["matrix"] == 1152 * 1024 ** 2)


def has_norms_of_r(rows):
    found = by(rows, "format", "input_std")
    lost = [row for row in rows if row["overflowed"] == row["outputs"]]
    return (found["fp16", 16]["overflowed"] > 0 == found["bf16", 16]["overflowed"]
            and lost and all(row.get("error_rms") is None for row in lost))


def has_operations_of_s(rows):
    """The table of S: activations, and operations without biases (ours have them apart)."""
    found = {row["part"]: row for row in rows if row["phase"] == "forward"}
    tokens, rows_c = BATCH * SEQ, BATCH * SEQ * WIDTH
    activations = {"attention/qkv": "B T 3C", "attention/qk": "B H T T", "attention/softmax": "B H T T", "attention/proj": "B T C",
                   "feed_forward/fc1": "B T F", "feed_forward/fc2": "B T C"}
    operations = {"attention/qkv": 6 * tokens * WIDTH ** 2, "attention/qk": 2 * rows_c * SEQ, "attention/v": 2 * rows_c * SEQ,
                  "attention/proj": 2 * tokens * WIDTH ** 2, "feed_forward/fc1": 8 * tokens * WIDTH ** 2,
                  "feed_forward/fc2": 8 * tokens * WIDTH ** 2}
    biases = {"attention/qkv": 3, "attention/proj": 1, "feed_forward/fc1": 4, "feed_forward/fc2": 1}
    return (all(activations[part] in (found[part]["activations"] or "") for part in activations)
            and all(near(found[part]["flop"], LAYERS * (flop + biases.get(part, 0) * rows_c)) for part, flop in operations.items())
            and all(found[part]["side"] == "memory" for part in ("attention/softmax", "ln1", "residual1")))


def has_exponents_of_s(rows):
    """By FLOP: 2 for scores, softmax and values, 1 for everything else of a layer."""
    wanted = {"attention/qk": 2, "attention/softmax": 2, "attention/v": 2, "attention/qkv": 1, "attention/proj": 1, "ln1": 1}
    found = [row for row in rows if row["phase"] == "forward" and row["size"] == "seq" and row["subject"] in wanted]
    return len(found) >= len(wanted) and all(abs(row["flop_exponent"] - wanted[row["subject"]]) < 0.01 for row in found)


def scales(rows):
    """Speed-up by the first row, efficiency by the ratio of GPUs."""
    first = rows[0]
    return all(near(row["speed_up"], first["step_s"] / row["step_s"], 1e-3)
               and near(row["efficiency"], row["speed_up"] * first["gpus"] / row["gpus"], 1e-3) for row in rows)


def phases_make_the_step(rows):
    """Forward, backward and optimizer are the step, but for what lies between them."""
    return all(0.8 < (row["forward_ms_mean"] + row["backward_ms_mean"] + row["optimizer_ms_mean"]) / row["step_ms_mean"] < 1.02 for row in rows)


def has_ratio_of_medians(rows):
    return all(near(row["backward_over_forward"], row["backward_ms_median"] / row["forward_ms_median"]) for row in rows)


def has_warmups_of_h(rows):
    """0, 2 and 5 warm-up steps, and 1."""
    return {int(row["warmup"]) for row in rows} == {0, 1, 2, 5}


def is_out_of_memory_where_it_must(rows):
    """T=100000 is, and nothing shorter."""
    return [int(row["seq"]) for row in rows] == [100000]


def is_a_kernel_summary(rows):
    """Total = instances x avg, min <= med <= max, shares of the step add up to 1."""
    return (all(near(row["total_s"], row["instances"] * row["avg_s"], 1e-3) and row["min_s"] <= row["med_s"] <= row["max_s"] for row in rows)
            and sums_to_one(rows, "time_share"))


def has_fragmentation(rows):
    """A step that allocates holds no less than it gives out; an arena's is what its tensors leave of it."""
    facts = by(rows, "what")
    found = facts["fragmentation"]["value"]
    if "arena_bytes" in facts:
        return near(1 - found, facts["live_bytes_peak"]["value"] / facts["arena_bytes"]["value"])
    return 0 <= found < 1 and facts["allocator_reserved_bytes"]["value"] * (1 - found) >= facts["allocator_peak_bytes"]["value"]


def has_shares_of_classes(rows):
    return sums_to_one(rows, "forward_share") and sums_to_one(rows, "step_share")


def explains_counts(rows):
    """The explanation makes the count."""
    return all(terms(row["explained"]) == row["count"] for row in rows)


def has_cost_of_observing(rows):
    return all(near(row["cost"], row["observed_s"] / row["plain_s"] - 1) and row["plain_std_s"] >= 0 for row in rows)


def grows_with_the_square(rows):
    """Batched attention holds T x T scores, flash attention does not."""
    found = by(rows, "attention", "head_dim", "seq")
    scores = 4 * 128 ** 2
    return all(found["batched", dim, 128]["peak_memory"] > scores > 0
               and found["batched", dim, 128]["peak_memory"] - found["batched", dim, 64]["peak_memory"] > scores * 3 / 4
               and found["flash", dim, 128]["peak_memory"] < found["batched", dim, 128]["peak_memory"] for dim in (32, 64))


def has_forward_beside_step(rows):
    """Runs of the forward pass alone have no other phase, and less alive than steps that recompute nothing."""
    phases = {}
    for row in rows:
        phases.setdefault(row["run"], set()).add(row["phase"])
    alone = [run for run, found in phases.items() if found <= {"persistent", "forward"}]
    return alone and len(alone) < len(phases)


def says_what_stays_fp32(rows):
    """Softmax and norms; gradients in 16 bits where the fused engine has them; fp8 gradients e4m3 unless asked."""
    found = {row["format"]: row["used_for"] for row in rows}
    return ("softmax" in found["fp32"] and "norms" in found["fp32"] and "gradients of weights" in found["bf16"]
            and "gradients" in found["fp8 e4m3"] and "--fp8-gradients" in found["fp8 e5m2"])


def has_shares_of_blocks(rows):
    return sums_to_one(rows, "first_share", "of", "phase") and sums_to_one(rows, "last_share", "of", "phase")


def has_wall_shares_of_blocks(rows):
    return sums_to_one(rows, "first_wall_share", "of", "phase") and sums_to_one(rows, "last_wall_share", "of", "phase")


def divides_by_launches(rows):
    """(wall - device) / launches."""
    return all(near(row["gap_s"], row["outside_s"] / row["launches"]) for row in rows)


def has_intensity(rows):
    return all(near(row["intensity"], row["flop"] / row["bytes"]) for row in rows)


def has_rates(rows):
    """FLOP by wall time, and as many of them in each strategy."""
    flop = {}
    for row in rows:
        flop.setdefault((row["n"], row["count"]), set()).add(row["flop"])
    return all(near(row["rate"], row["flop"] / row["wall_ms"] * 1e3) for row in rows) and all(len(same) == 1 for same in flop.values())


def has_scores_of_llama(rows):
    """2 B H T T D in training, 2 B H T D in decoding: 32 heads of 128, T=128."""
    return {row["flop"] for row in rows} == {2 * 32 * 128 * 128 * 128, 2 * 32 * 128 * 128}


def has_tokens_per_second(rows):
    return all(near(row["tokens_per_s"], row["batch"] * row["seq"] / row["step_ms_median"] * 1e3, 1e-3) for row in rows)


def is_one_flop_in_6_bytes(rows):
    """saxpy reads two floats and writes one for two FLOP."""
    return all(near(row["flop_per_s"] / row["value"], 2 / 12) and row["dtype"] == "fp32" for row in rows)


def is_one_flop_in_8_bytes(rows):
    """A multiply-add reads a number and writes it: 2 FLOP in 16 bytes of fp64, in 8 of fp32 on a GPU."""
    return all(near(row["flop_per_s"] / row["value"], 2 / (16 if row["device"] == "cpu" else 8)) for row in rows)


def has_the_disk(rows):
    found = {row["what"]: row["value"] for row in rows}
    return near(found["of the disk"], found["bytes of text per second"] / found["disk, bytes per second"]) and found["of the step"] < 1


def sums_right(rows):
    """No wrong element; on two ranks an all-reduce's bus bandwidth is its algorithm bandwidth."""
    return all(row["wrong"] == 0 and near(row["busbw"], row["algbw"]) for row in rows)


def has_forward_alone(rows):
    """Forward is timed, backward and step are not."""
    return all(row["forward_ms_mean"] > 0 and row.get("backward_ms_mean") is None and row.get("step_ms_mean") is None for row in rows)


def is_advertised_as_l(rows):
    """A100: 312 and 624 TFLOP/s, INT8 624 and 1248; sustained: 90 % of it there, 82 % on an H100."""
    found = by(rows, "device", "dtype")
    a100, h100 = found["a100-sxm", "bf16"], found["h100-sxm", "bf16"]
    return (a100["dense"] == 312e12 and a100["sparse"] == 624e12 and found["a100-sxm", "tf32"]["sparse"] == 312e12
            and found["a100-sxm", "int8"]["dense"] == 624e12 and found["a100-sxm", "int8"]["sparse"] == 1248e12
            and 0.7 < a100["share"] < 1 and abs(h100["share"] - 0.82) < 0.03)


def compares_engines(rows):
    """The speed-up of the fused engine is the ratio of medians, of the same model."""
    found = by(rows, "engine")
    eager, fused = found["eager"], found["fused"]
    return near(fused["speedup_over_eager"], eager["step_ms_median"] / fused["step_ms_median"]) and eager["params"] == fused["params"]


def computes_the_same(rows):
    """Op by op and fused have one loss."""
    return len(rows) == 2 and near(rows[0]["loss"], rows[1]["loss"], 1e-4) and rows[0]["loss"] > 1


def fuses(rows):
    """Of the same attention, the fused engine launches less than the eager one, and less in each phase."""
    found = launches(rows, "phase")
    return all(found["fused " + kind, phase] < found["eager " + kind, phase]
               for kind in ("looped", "batched") for phase in ("forward", "backward", "optimizer"))


def launches(rows, *keys):
    sums = {}
    for row in rows:
        group = (row["which"], *(row[key] for key in keys))
        sums[group] = sums.get(group, 0) + row["launches"]
    return sums


def loops_over_heads(rows):
    """Looped attention launches each matmul of scores and values B H times instead of once: 2 layers, B H = 4, two matmuls
    forward and four backward."""
    found = launches(rows, "phase", "block")
    return all(found[engine + " looped", phase, "attention"] - found[engine + " batched", phase, "attention"] == 2 * matmuls * (4 - 1)
               for engine in ("eager", "fused") for phase, matmuls in (("forward", 2), ("backward", 4)))


def counts_gemms(rows):
    """A step has 4 matmuls a layer and the head, and twice as many backward; the longest kernel is first."""
    totals = [row["total_s"] for row in rows]
    matmuls = {phase: sum(row["instances"] for row in rows if row["class"] == "matmul" and row["phase"] == phase)
               for phase in ("forward", "backward")}
    return (totals == sorted(totals, reverse=True) and matmuls["forward"] > 0 == matmuls["forward"] % (4 * 2 + 1)
            and matmuls["backward"] == 2 * matmuls["forward"])


def agrees_with_timers(rows):
    """Phases add up to the step, and device times of ops are within their phase, within what clocks differ."""
    found = by(rows, "law")
    return all(found[law]["checked"] > 0 == found[law]["violated"]
               for law in ("phases add up to the step", "device times of ops are within their phase"))


def agrees_where_the_host_waits(rows):
    """Wall times of ops, too, add up to their phases. A GPU's ops run while the host submits the next."""
    found = by(rows, "law")
    return agrees_with_timers(rows) and found["wall times of ops add up to their phase"]["checked"] > 0 == found[
        "wall times of ops add up to their phase"]["violated"]


def flash_grows_linearly(rows):
    """Twice the length: twice the memory of flash attention, more than that where scores are kept."""
    found = by(rows, "attention", "head_dim", "seq")
    grown = {(kind, dim): found[kind, dim, 128]["peak_memory"] / found[kind, dim, 64]["peak_memory"]
             for kind in ("flash", "batched") for dim in (32, 64)}
    return all(near(grown["flash", dim], 2, 0.01) and grown["batched", dim] > 2.05 for dim in (32, 64))


def is_one_layer(rows):
    """Parts of a layer alone, whose shares add up to 1."""
    parts = {row["part"] for row in rows}
    return {"ln1", "attention/qk", "feed_forward"} <= parts and not parts & {"embedding", "lm_head", "loss", "optimizer"} and has_shares_of_blocks(rows)


def has_both_ends(rows):
    """The first and last T of the sweep; growth is the ratio of their times, a share that of the phase's time."""
    sums = {}
    for row in rows:
        group = row["of"], row["phase"]
        first, last = sums.get(group, (0, 0))
        sums[group] = first + (row["first_s"] or 0), last + (row["last_s"] or 0)
    return all((row["smallest"], row["largest"]) == (32, 128) and near(row["times"], row["last_s"] / row["first_s"])
               and near(row["first_share"], row["first_s"] / sums[row["of"], row["phase"]][0])
               and near(row["last_share"], row["last_s"] / sums[row["of"], row["phase"]][1]) for row in rows)


def has_throughput(rows):
    """Bytes and FLOP by measured time, and the roof's share of it."""
    return all(near(row["byte_per_s"], row["bytes"] / row["measured_s"]) and near(row["share"], row["roof_s"] / row["measured_s"])
               and (not row["flop"] or near(row["flop_per_s"], row["flop"] / row["measured_s"])) for row in rows)


def splits_the_time(rows):
    """In kernels and between them is all of the time."""
    shares = [float(share) for share in re.findall(r"([0-9.]+)%", rows[0]["shown"])]
    return len(rows) == 1 and len(shares) == 2 and abs(sum(shares) - 100) < 0.15 and shares[0] > 50


def serves_all_requests(rows):
    """Requests by time are the rate; those of the users add up; fairness is Jain's index of what they were served."""
    whole = [row for row in rows if row.get("requests_per_s")]
    users = {}
    for row in rows:
        if row.get("user") is not None:
            users.setdefault((row["schedule"], row["rate"]), []).append(row)
    for row in whole:
        served = users[row["schedule"], row["rate"]]
        shares = [user["served_share"] for user in served if user.get("served_share") is not None]  # of those who came at once
        fits = (near(row["requests_per_s"] * row["duration_s"], row["requests"]) and row["requests"] == 12 == sum(user["requests"] for user in served)
                and near(row["tokens_per_s"] * row["duration_s"], sum(user["tokens"] for user in served))
                and row["ttft_median_s"] <= row["ttft_p99_s"] and 0 < row["batch_share"] <= 1
                and (not shares or near(row["fairness_served"], 1 / (len(shares) * sum(share ** 2 for share in shares)))))
        if not fits:
            return False
    return len(whole) == 12


def is_a_short_training(rows):
    """3 steps of 2 x 32 tokens; perplexity is that of the loss."""
    return all(row["step"] == 3 and row["tokens"] == 3 * 2 * 32 and near(row["tokens"], row["tokens_per_s"] * row["train_s"])
               and near(row["val_perplexity"], math.exp(row["val_loss"])) for row in rows)


def has_flop_of_a_rank(rows):
    """The projection of attention: 2 B T C^2 a layer on each rank, and twice that backward."""
    found = {row["phase"]: row["flop"] for row in rows if row["block"] == "attention/proj"}
    forward = 2 * 2 * 64 * 128 ** 2 * 2
    return found == {"forward": forward, "backward": 2 * forward} and any(row["block"] == "gradients" for row in rows)


def counts_rows_of_experts(rows):
    """Each layer has a row for each token and each of the 2 experts that it takes; the busiest has at least the mean."""
    return all(row["rows"] == 2 * 64 * 2 and row["max_over_mean"] >= 1 and 0 <= row["gini"] < 1 for row in rows)


def has_dearer_optimizers(rows):
    """Muon and Shampoo multiply matrices where AdamW passes over them once; what comes before is the same step."""
    found = {row["optimizer"]: row for row in rows}
    return all(found[name]["status"] == "success" and found[name]["optimizer_ms_mean"] > found["adamw"]["optimizer_ms_mean"]
               and found[name]["params"] == found["adamw"]["params"] for name in ("muon", "shampoo"))
