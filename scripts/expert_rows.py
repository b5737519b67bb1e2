"""Published runs of mixtures of experts: the model of a row as a Hugging Face configuration, and how its experts are split."""

import atexit
import json
import pathlib
import re
import shutil
import tempfile

from row_columns import count, number

FOLDER = []  # of configurations, until the script ends


def has_experts(row):
    return max(number(row, name) or 1 for name in ("experts", "EP")) > 1


def said(row):
    return f"{row.get('model')}; {row.get('notes') or ''}; {row.get('certainty') or ''}".lower()


def first_number(pattern, text, default=None):
    found = re.search(pattern, text)
    return int(found[1]) if found else default


def config_of(row, sizes):
    """`sizes`: options of a dense model of the row's (published_rows.sizes_of). What a row leaves open is what the family's
    published models have."""
    text = said(row)
    experts = count(row, "experts")
    if experts == 1:
        raise ValueError("the number of experts (experts) is not said")
    width = first_number(r"experts of (\d+)", text, sizes["--d-ff"])
    active = first_number(r"(\d+) per token", text)
    if active is None:
        usual = {"mixtral|grok": 2, "llama.?4": 1, "deepseek.?v3|kimi|qwen3": 8, "gpt.?oss": 4}
        active = next((number for names, number in usual.items() if re.search(names, text)), None)
        if active is None:
            raise ValueError("how many experts a token takes is not said")
    config = {"hidden_size": sizes["--d-model"], "num_hidden_layers": sizes["--layers"], "vocab_size": sizes["--vocab"],
              "num_attention_heads": sizes["--heads"], "num_key_value_heads": sizes["--kv-heads"], "intermediate_size": width,
              "moe_intermediate_size": width, "num_experts_per_tok": active, "max_position_embeddings": 1 << 20,
              "tie_word_embeddings": False, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}
    head = first_number(r"head size (\d+)", text)
    if head:
        config["head_dim"] = head
    dense = re.search(r"first (\d+) layers? dense \((\d+)\)", text)
    shared = first_number(r"(\d+) shared", text, 0)
    if re.search(r"\bmla\b|latent", text):
        config |= {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "n_routed_experts": experts,
                   "n_shared_experts": shared or None, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
                   "qk_rope_head_dim": 64, "v_head_dim": 128, "n_group": 1, "topk_group": 1,
                   "first_k_dense_replace": int(dense[1]) if dense else 1, "intermediate_size": int(dense[2]) if dense else 18432}
    elif "gpt-oss" in text or "gpt_oss" in text:
        config |= {"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "num_local_experts": experts,
                   "sliding_window": first_number(r"window of (\d+)", text, 128)}
    elif "llama 4" in text or "llama4" in text:
        config |= {"model_type": "llama4_text", "architectures": ["Llama4ForCausalLM"], "num_local_experts": experts,
                   "intermediate_size_mlp": 2 * width, "interleave_moe_layer_step": 2 if "maverick" in text or "every other layer" in text else 1}
    elif "shared expert of" in text:
        config |= {"model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"], "num_experts": experts,
                   "shared_expert_intermediate_size": first_number(r"shared expert of (\d+)", text)}
    elif "qwen3" in text:
        config |= {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts": experts,
                   "norm_topk_prob": True}
    else:
        config |= {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": experts}
    return config


def model_of(row, sizes):
    """A folder with the configuration of the row."""
    if not FOLDER:
        FOLDER.append(pathlib.Path(tempfile.mkdtemp(prefix="expert_rows")))
        atexit.register(shutil.rmtree, FOLDER[0], ignore_errors=True)
    text = json.dumps(config_of(row, sizes), sort_keys=True)
    folder = FOLDER[0] / f"{abs(hash(text)):x}"
    if not folder.exists():
        folder.mkdir()
        (folder / "config.json").write_text(text, encoding="utf-8")
    return str(folder)


def split_of_experts(row):
    """Ranks that share the experts. Where ETP is not said: tensor-parallel ranks shared each expert until Megatron-Core 0.9
    (NeMo 24.12), recipes since then leave experts whole."""
    tp = count(row, "TP")
    etp = first_number(r"\betp (\d+)", said(row))
    if etp is None:
        etp = tp if re.search(r"nemo 24|core 0\.[0-8]\b|megatron-lm \(", (row.get("framework") or "").lower()) else 1
    return {"--ep": count(row, "EP"), "--expert-tp": etp if tp > 1 else 1}
