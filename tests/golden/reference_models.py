"""GPT-2 and Llama as plain functions of (config, parameters, tokens).

Parameters are a dict of tensors under Hugging Face names. Everything runs in the type of the
parameters; rotary angles are always computed in double and then rounded to it.
"""

import math

import torch
import torch.nn.functional as F


def is_gpt2(config):
    return config["model_type"] == "gpt2"


def parameter_shapes(config):
    """Name -> shape, in the order of a forward pass. A tied output matrix is not listed."""
    return gpt2_shapes(config) if is_gpt2(config) else llama_shapes(config)


def forward(config, params, tokens, positions=None):
    """Logits (batch, seq, vocab). positions (batch, seq): of each token in its document, which are
    packed into the sequences; None: each sequence is one."""
    if positions is None:
        positions = torch.arange(tokens.shape[1]).expand(tokens.shape)
    return (gpt2 if is_gpt2(config) else llama)(config, params, tokens, positions)


def loss_of(config, params, tokens, targets, positions=None):
    """Mean cross-entropy over all targets but those of -1."""
    logits = forward(config, params, tokens, positions)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten().long(), ignore_index=-1)


def block_linear(x, w, bias=None):
    """A product of a block, [out, in]: what make_fp8.py replaces."""
    return F.linear(x, w, bias)


def hidden_keys(positions):
    """(b, t, t): keys that a query does not see, later ones and those of other documents."""
    document = (positions == 0).cumsum(1)
    future = torch.ones(2 * positions.shape[1:], dtype=torch.bool).triu(1)
    return future | (document[:, :, None] != document[:, None, :])


def causal_attention(q, k, v, hidden):
    """q (b, heads, t, d), k and v (b, kv_heads, t, d); written out rather than fused."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return scores.masked_fill(hidden[:, None], -math.inf).softmax(-1) @ v


def split_heads(x, head_dim):
    b, t, width = x.shape
    return x.view(b, t, width // head_dim, head_dim).transpose(1, 2)


def join_heads(x):
    return x.transpose(1, 2).flatten(2)


# --- GPT-2: matrices of the blocks are Conv1D, stored [in, out] ---


def gpt2_shapes(c):
    d, f = c["n_embd"], c["n_inner"] or 4 * c["n_embd"]
    shapes = {"transformer.wte.weight": (c["vocab_size"], d), "transformer.wpe.weight": (c["n_positions"], d)}
    for i in range(c["n_layer"]):
        block = {
            "ln_1.weight": (d,), "ln_1.bias": (d,),
            "attn.c_attn.weight": (d, 3 * d), "attn.c_attn.bias": (3 * d,),
            "attn.c_proj.weight": (d, d), "attn.c_proj.bias": (d,),
            "ln_2.weight": (d,), "ln_2.bias": (d,),
            "mlp.c_fc.weight": (d, f), "mlp.c_fc.bias": (f,),
            "mlp.c_proj.weight": (f, d), "mlp.c_proj.bias": (d,),
        }
        shapes.update({f"transformer.h.{i}.{k}": v for k, v in block.items()})
    shapes.update({"transformer.ln_f.weight": (d,), "transformer.ln_f.bias": (d,)})
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], d)
    return shapes


def gpt2(c, p, tokens, positions):
    d, eps = c["n_embd"], c["layer_norm_epsilon"]
    head_dim = d // c["n_head"]
    wte = p["transformer.wte.weight"]
    x = wte[tokens] + p["transformer.wpe.weight"][positions]
    hidden = hidden_keys(positions)
    for i in range(c["n_layer"]):
        w = {k: p[f"transformer.h.{i}.{k}"] for k in (
            "ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight",
            "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias",
            "mlp.c_proj.weight", "mlp.c_proj.bias")}
        h = F.layer_norm(x, (d,), w["ln_1.weight"], w["ln_1.bias"], eps)
        q, k, v = block_linear(h, w["attn.c_attn.weight"].T, w["attn.c_attn.bias"]).split(d, -1)
        a = join_heads(causal_attention(*(split_heads(t, head_dim) for t in (q, k, v)), hidden))
        x = x + block_linear(a, w["attn.c_proj.weight"].T, w["attn.c_proj.bias"])
        h = F.layer_norm(x, (d,), w["ln_2.weight"], w["ln_2.bias"], eps)
        h = F.gelu(block_linear(h, w["mlp.c_fc.weight"].T, w["mlp.c_fc.bias"]), approximate="tanh")
        x = x + block_linear(h, w["mlp.c_proj.weight"].T, w["mlp.c_proj.bias"])
    x = F.layer_norm(x, (d,), p["transformer.ln_f.weight"], p["transformer.ln_f.bias"], eps)
    return F.linear(x, p.get("lm_head.weight", wte))


# --- Llama, Mistral, Qwen2 (biases on q, k, v), Qwen3 (norms of q and k): matrices are [out, in] ---


def head_dim_of(c):
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


def llama_shapes(c):
    d, f, hd = c["hidden_size"], c["intermediate_size"], head_dim_of(c)
    q, kv = c["num_attention_heads"] * hd, c["num_key_value_heads"] * hd
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], d)}
    for i in range(c["num_hidden_layers"]):
        block = {"input_layernorm.weight": (d,), "self_attn.q_proj.weight": (q, d),
                 "self_attn.k_proj.weight": (kv, d), "self_attn.v_proj.weight": (kv, d)}
        if has_qkv_bias(c):
            block.update({"self_attn.q_proj.bias": (q,), "self_attn.k_proj.bias": (kv,), "self_attn.v_proj.bias": (kv,)})
        if has_qk_norm(c):
            block.update({"self_attn.q_norm.weight": (hd,), "self_attn.k_norm.weight": (hd,)})
        block.update({"self_attn.o_proj.weight": (d, q), "post_attention_layernorm.weight": (d,),
                      "mlp.gate_proj.weight": (f, d), "mlp.up_proj.weight": (f, d), "mlp.down_proj.weight": (d, f)})
        shapes.update({f"model.layers.{i}.{k}": v for k, v in block.items()})
    shapes["model.norm.weight"] = (d,)
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], d)
    return shapes


def has_qkv_bias(c):
    return c["model_type"] == "qwen2"


def has_qk_norm(c):
    return c["model_type"] == "qwen3"


def rope_frequencies(c):
    hd = head_dim_of(c)
    frequencies = [c["rope_theta"] ** (-2 * i / hd) for i in range(hd // 2)]
    scaling = c.get("rope_scaling")
    if not scaling:
        return frequencies
    if scaling["rope_type"] == "linear":
        return [f / scaling["factor"] for f in frequencies]
    return [llama3_frequency(f, scaling) for f in frequencies]


def llama3_frequency(frequency, s):
    wavelength = 2 * math.pi / frequency
    original, low, high = s["original_max_position_embeddings"], s["low_freq_factor"], s["high_freq_factor"]
    if wavelength < original / high:
        return frequency
    if wavelength > original / low:
        return frequency / s["factor"]
    smooth = (original / wavelength - low) / (high - low)
    return (1 - smooth) * frequency / s["factor"] + smooth * frequency


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def rms_norm(x, w, eps):
    return w * x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)


def llama(c, p, tokens, positions):
    eps, hd = c["rms_norm_eps"], head_dim_of(c)
    embed = p["model.embed_tokens.weight"]
    angles = positions.double()[:, None, :, None] * torch.tensor(rope_frequencies(c), dtype=torch.float64)
    cos, sin = angles.cos().to(embed.dtype), angles.sin().to(embed.dtype)
    hidden = hidden_keys(positions)
    x = embed[tokens]
    for i in range(c["num_hidden_layers"]):
        prefix = f"model.layers.{i}."
        h = rms_norm(x, p[prefix + "input_layernorm.weight"], eps)
        q, k, v = (split_heads(block_linear(h, p[prefix + f"self_attn.{n}_proj.weight"],
                                            p.get(prefix + f"self_attn.{n}_proj.bias")), hd) for n in "qkv")
        if has_qk_norm(c):
            q = rms_norm(q, p[prefix + "self_attn.q_norm.weight"], eps)
            k = rms_norm(k, p[prefix + "self_attn.k_norm.weight"], eps)
        a = join_heads(causal_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, hidden))
        x = x + block_linear(a, p[prefix + "self_attn.o_proj.weight"])
        h = rms_norm(x, p[prefix + "post_attention_layernorm.weight"], eps)
        gate, up = (block_linear(h, p[prefix + f"mlp.{n}_proj.weight"]) for n in ("gate", "up"))
        x = x + block_linear(F.silu(gate) * up, p[prefix + "mlp.down_proj.weight"])
    x = rms_norm(x, p["model.norm.weight"], eps)
    return F.linear(x, p.get("lm_head.weight", embed))
