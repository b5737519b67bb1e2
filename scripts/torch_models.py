"""GPT2LMHeadModel and LlamaForCausalLM in plain PyTorch, parameters named as in Hugging Face transformers."""
import math

import torch
from torch import nn
from torch.nn import functional as F


def causal_attention(q, k, v):
    """softmax(q k^T / sqrt(D), masked) v on [B, H, T, D]; fewer key/value heads are repeated to H."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    steps = q.shape[2]
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    later = torch.ones(steps, steps, dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ v


def split_heads(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def merge_heads(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


class Conv1D(nn.Module):
    """GPT-2's linear layer: y = x W + b with W stored as [in, out]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class GPT2Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config["n_head"]
        self.c_attn = Conv1D(config["n_embd"], 3 * config["n_embd"])
        self.c_proj = Conv1D(config["n_embd"], config["n_embd"])

    def forward(self, x):
        q, k, v = (split_heads(part, self.heads) for part in self.c_attn(x).chunk(3, dim=-1))
        return self.c_proj(merge_heads(causal_attention(q, k, v)))


class GPT2MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        inner = config.get("n_inner") or 4 * config["n_embd"]
        self.c_fc = Conv1D(config["n_embd"], inner)
        self.c_proj = Conv1D(inner, config["n_embd"])

    def forward(self, x):
        x = self.c_fc(x)
        gelu_new = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return self.c_proj(gelu_new)


class GPT2Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config["n_embd"], eps=config["layer_norm_epsilon"])
        self.attn = GPT2Attention(config)
        self.ln_2 = nn.LayerNorm(config["n_embd"], eps=config["layer_norm_epsilon"])
        self.mlp = GPT2MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2LMHeadModel(nn.Module):
    """The head is the token embedding itself (transformer.wte.weight)."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        width = config["n_embd"]
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(config["vocab_size"], width),
            "wpe": nn.Embedding(config["n_positions"], width),
            "h": nn.ModuleList(GPT2Block(config) for _ in range(config["n_layer"])),
            "ln_f": nn.LayerNorm(width, eps=config["layer_norm_epsilon"]),
        })

    def forward(self, tokens):
        body = self.transformer
        x = body["wte"](tokens) + body["wpe"].weight[: tokens.shape[1]]
        for block in body["h"]:
            x = block(x)
        return body["ln_f"](x) @ body["wte"].weight.T


class LlamaRMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def rope_theta(config):
    """At the top of config.json, or within rope_parameters as newer versions of transformers write it."""
    nested = config.get("rope_parameters") or {}
    if config.get("rope_scaling") or nested.get("rope_type", "default") != "default":
        raise ValueError("config.json: scaled rotary positions are not supported")
    return nested.get("rope_theta", config.get("rope_theta", 10000.0))


def rotate(x, theta):
    """Rotary embedding in the rotate_half convention: element i pairs with element i + D/2."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * frequency
    cos, sin = angle.cos().to(x), angle.sin().to(x)
    low, high = x[..., :half], x[..., half:]
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


class LlamaAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        size = config.get("head_dim") or width // self.heads
        self.theta = rope_theta(config)
        self.q_proj = nn.Linear(width, self.heads * size, bias=False)
        self.k_proj = nn.Linear(width, self.kv_heads * size, bias=False)
        self.v_proj = nn.Linear(width, self.kv_heads * size, bias=False)
        self.o_proj = nn.Linear(self.heads * size, width, bias=False)

    def forward(self, x):
        q = rotate(split_heads(self.q_proj(x), self.heads), self.theta)
        k = rotate(split_heads(self.k_proj(x), self.kv_heads), self.theta)
        v = split_heads(self.v_proj(x), self.kv_heads)
        return self.o_proj(merge_heads(causal_attention(q, k, v)))


class LlamaMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, eps = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm = LlamaRMSNorm(width, eps)
        self.self_attn = LlamaAttention(config)
        self.post_attention_layernorm = LlamaRMSNorm(width, eps)
        self.mlp = LlamaMLP(config)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(config["vocab_size"], config["hidden_size"]),
            "layers": nn.ModuleList(LlamaBlock(config) for _ in range(config["num_hidden_layers"])),
            "norm": LlamaRMSNorm(config["hidden_size"], config["rms_norm_eps"]),
        })
        self.tied = config.get("tie_word_embeddings", False)
        if not self.tied:
            self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)

    def forward(self, tokens):
        x = self.model["embed_tokens"](tokens)
        for block in self.model["layers"]:
            x = block(x)
        x = self.model["norm"](x)
        return x @ self.model["embed_tokens"].weight.T if self.tied else self.lm_head(x)


def build(config):
    """The model that a config.json describes, with uninitialised weights."""
    kinds = {"gpt2": GPT2LMHeadModel, "llama": LlamaForCausalLM}
    kind = config.get("model_type")
    if kind not in kinds:
        raise ValueError(f"config.json: model_type is {kind!r}, expected one of {', '.join(kinds)}")
    return kinds[kind](config)


def initialise(model, std, generator):
    """Normal weights; those that write the residual stream are divided by sqrt(2 L), as in the GPT-2 paper."""
    layers = model.config.get("n_layer") or model.config.get("num_hidden_layers")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2:
                continue
            into_residual = name.endswith(("c_proj.weight", "o_proj.weight", "down_proj.weight"))
            scale = std / math.sqrt(2 * layers) if into_residual else std
            parameter.normal_(0, scale, generator=generator)


def loss_of(model, tokens, targets):
    """Mean cross-entropy in nats of [B, T] tokens against [B, T] targets."""
    logits = model(tokens)
    logits = getattr(logits, "logits", logits)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def adamw(model, lr, betas, eps, weight_decay):
    """AdamW; norms and biases, that is parameters with fewer than two dimensions, do not decay."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps)
