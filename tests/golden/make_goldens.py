"""Reference numbers for the training engine: see README.md beside this file.

Usage: make_goldens.py [--check]   writes, or compares with, one folder per model.
"""

import json
import math
import pathlib
import struct
import sys

import numpy as np
import torch

import reference_models as ref

HERE = pathlib.Path(__file__).parent
BATCH, SEQ = 4, 24

TRAINING = {
    "steps": 20, "batch": BATCH, "seq": SEQ,
    "lr": 3e-3, "lr_min": 3e-4, "warmup_steps": 5,
    "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0,
}

# The same with SGD, whose rates are larger, for these models.
SGD = {"lr_times": 20, "momentum": 0.9, "weight_decay": 0.01}
SGD_MODELS = ("gpt2-tiny", "llama-tiny")

# Sizes that no vector length divides, where the architecture allows it.
MODELS = {
    "gpt2-tiny": {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
        "n_layer": 2, "n_embd": 36, "n_head": 3, "n_inner": 144, "vocab_size": 101, "n_positions": 32,
        "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
    },
    "llama-tiny": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "num_hidden_layers": 2, "hidden_size": 36, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 10, "intermediate_size": 92, "vocab_size": 103, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
        "rope_theta": 10000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    },
    "qwen2-tiny": {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
        "num_hidden_layers": 2, "hidden_size": 30, "num_attention_heads": 3, "num_key_value_heads": 1,
        "head_dim": 10, "intermediate_size": 76, "vocab_size": 97, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "use_sliding_window": False,
        "rope_theta": 1000000.0,
    },
    "qwen3-tiny": {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu",
        "num_hidden_layers": 2, "hidden_size": 36, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 14, "intermediate_size": 68, "vocab_size": 95, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "attention_bias": False,
        "use_sliding_window": False, "sliding_window": None, "rope_theta": 1000000.0,
    },
    # the window is as long as the sequences: full attention
    "mistral-tiny": {
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_act": "silu",
        "num_hidden_layers": 2, "hidden_size": 40, "num_attention_heads": 4, "num_key_value_heads": 1,
        "head_dim": 10, "intermediate_size": 72, "vocab_size": 91, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "sliding_window": SEQ,
        "rope_theta": 10000.0,
    },
    "smollm2-tiny": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "num_hidden_layers": 2, "hidden_size": 36, "num_attention_heads": 3, "num_key_value_heads": 1,
        "intermediate_size": 68, "vocab_size": 93, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
        "rope_theta": 100000.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    },
    "gpt2-untied-tiny": {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
        "n_layer": 2, "n_embd": 32, "n_head": 4, "n_inner": 52, "vocab_size": 89, "n_positions": 24,
        "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
    },
}


# Those that are also trained on packed documents: learned positions, and rotary ones.
PACKED = ("gpt2-tiny", "llama-tiny")


# --- inputs ---


def initial_parameters(config, seed):
    """Larger than usual initial values, so that attention is far from uniform and no gradient is
    lost in another; biases and norms are not at their neutral values either."""
    g = torch.Generator().manual_seed(seed)
    params = {}
    for name, shape in ref.parameter_shapes(config).items():
        noise = torch.randn(shape, generator=g, dtype=torch.float64)
        if len(shape) == 2:
            value = noise * (0.3 if "embed" in name or "wte" in name else 0.8 / math.sqrt(min(shape)))
        else:
            value = 0.1 * noise + (0 if name.endswith("bias") else 1)
        params[name] = value.to(torch.float32)
    return params


def token_batches(config, seed):
    """(steps, batch, seq) tokens and targets of a stream with something to learn: each token is mostly
    a fixed function of the one before."""
    rng = np.random.RandomState(seed)
    vocab = config["vocab_size"]
    stream = np.zeros((TRAINING["steps"], BATCH, SEQ + 1), dtype=np.int64)
    stream[..., 0] = rng.randint(0, vocab, stream.shape[:2])
    for t in range(1, SEQ + 1):
        follows = (stream[..., t - 1] * 7 + 3) % vocab
        stream[..., t] = np.where(rng.rand(*follows.shape) < 0.8, follows, rng.randint(0, vocab, follows.shape))
    stream = torch.from_numpy(stream)
    return stream[..., :-1].contiguous(), stream[..., 1:].contiguous()


def packed_positions(seed):
    """(steps, batch, seq): where each token stands in its document; a document ends behind any token
    with a chance of a fifth, and at the end of a sequence."""
    begins = np.random.RandomState(1000 + seed).rand(TRAINING["steps"], BATCH, SEQ) < 0.2
    positions = np.zeros(begins.shape, dtype=np.int64)
    for t in range(1, SEQ):
        positions[..., t] = np.where(begins[..., t], 0, positions[..., t - 1] + 1)
    return torch.from_numpy(positions)


def targets_within(targets, positions):
    """-1 where the next token begins another document."""
    within = targets.clone()
    within[..., :-1][positions[..., 1:] == 0] = -1
    return within


# --- numbers ---


def as_type(params, dtype):
    return {name: p.to(dtype).clone().requires_grad_() for name, p in params.items()}


def loss_and_gradients(config, params, tokens, targets, dtype, positions=None):
    p = as_type(params, dtype)
    loss = ref.loss_of(config, p, tokens, targets, positions)
    loss.backward()
    return loss.item(), {name: x.grad for name, x in p.items()}


def learning_rate(step):
    """step counts from 1: linear warm-up, then half a cosine from lr to lr_min at the last step."""
    t = TRAINING
    if step <= t["warmup_steps"]:
        return t["lr"] * step / t["warmup_steps"]
    progress = (step - t["warmup_steps"]) / (t["steps"] - t["warmup_steps"])
    return t["lr_min"] + 0.5 * (t["lr"] - t["lr_min"]) * (1 + math.cos(math.pi * progress))


def groups_of(p, weight_decay):
    return [{"params": [x for x in p.values() if x.dim() == 2], "weight_decay": weight_decay},
            {"params": [x for x in p.values() if x.dim() == 1], "weight_decay": 0.0}]


def make_adamw(p):
    t = TRAINING
    return torch.optim.AdamW(groups_of(p, t["weight_decay"]), betas=(t["beta1"], t["beta2"]), eps=t["eps"])


def make_sgd(p):
    return torch.optim.SGD(groups_of(p, SGD["weight_decay"]), lr=1, momentum=SGD["momentum"])


def train(config, params, tokens, targets, dtype, make_optimizer=make_adamw, lr_times=1, positions=None):
    """Loss (before the update), gradient norm (before clipping) and learning rate of every step, by
    PyTorch's own optimizer and clipping."""
    p, t = as_type(params, dtype), TRAINING
    optimizer = make_optimizer(p)
    losses, norms, rates = [], [], []
    for step in range(1, t["steps"] + 1):
        rates.append(lr_times * learning_rate(step))
        for group in optimizer.param_groups:
            group["lr"] = rates[-1]
        packed = None if positions is None else positions[step - 1]
        loss = ref.loss_of(config, p, tokens[step - 1], targets[step - 1], packed)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(p.values(), t["clip_norm"]).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, rates


# --- a second opinion ---


def transformers_model(config, dtype):
    """Hugging Face's own class, without dropout; norms and angles inside are fp32."""
    import transformers
    classes = {"gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
               "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
               "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
               "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
               "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM)}
    config_class, model_class = classes[config["model_type"]]
    hf_config = config_class(**config, attn_implementation="eager", attn_pdrop=0, embd_pdrop=0, resid_pdrop=0)
    return model_class(hf_config).to(dtype).train()


def load_parameters(model, params, dtype):
    missing, unexpected = model.load_state_dict({k: v.to(dtype) for k, v in params.items()}, strict=False)
    assert not unexpected and all("lm_head" in name or ".attn.bias" in name for name in missing), (missing, unexpected)


def documents_of(tokens, positions):
    """One after the other, each a sequence of its own."""
    begins = (positions.flatten() == 0).nonzero().flatten().tolist() + [tokens.numel()]
    return [tokens.flatten()[a:b] for a, b in zip(begins, begins[1:])]


def transformers_gradients(config, params, tokens, targets, dtype, positions=None):
    model = transformers_model(config, dtype)
    load_parameters(model, params, dtype)
    if positions is None:
        logits = model(tokens).logits
    else:
        logits = torch.cat([model(d[None]).logits for d in documents_of(tokens, positions)], 1)
    loss_type = torch.float64 if dtype == torch.float64 else torch.float32
    loss = torch.nn.functional.cross_entropy(logits.to(loss_type).flatten(0, 1), targets.flatten(), ignore_index=-1)
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}


def train_bf16(config, params, tokens, targets):
    """Losses of the same training with a model in bf16 and parameters, gradients and optimizer in
    fp32: each step starts from the rounded parameters."""
    p, t = as_type(params, torch.float32), TRAINING
    optimizer = make_adamw(p)
    losses = []
    for step in range(1, t["steps"] + 1):
        loss, gradients = transformers_gradients(config, p, tokens[step - 1], targets[step - 1], torch.bfloat16)
        for name, x in p.items():
            x.grad = gradients[name].float()
        torch.nn.utils.clip_grad_norm_(p.values(), t["clip_norm"])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.step()
        losses.append(loss)
    return losses


def check_against_transformers(name, config, params, tokens, targets, loss, gradients, positions=None):
    hf_loss, hf_gradients = transformers_gradients(config, params, tokens, targets, torch.float64, positions)
    scale = max(g.norm().item() for g in gradients.values())
    worst = max((g - hf_gradients[n]).norm().item() / max(g.norm().item(), 1e-3 * scale) for n, g in gradients.items())
    print(f"{name}: loss {loss:.12f}, transformers {hf_loss:.12f}; gradients apart by {worst:.1e} at most")
    assert abs(loss - hf_loss) < 1e-6 * loss and worst < 2e-5


# --- files ---


def write_safetensors(path, tensors):
    """tensors: name -> numpy array, bf16 as its bits in uint16. Header padded so that the data start at a multiple of 8."""
    words = {"float32": "F32", "float64": "F64", "int32": "I32", "uint16": "BF16"}
    header, offset = {}, 0
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))
    for name, x in ordered:
        header[name] = {"dtype": words[str(x.dtype)], "shape": list(x.shape), "data_offsets": [offset, offset + x.nbytes]}
        offset += x.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(np.ascontiguousarray(x).tobytes() for _, x in ordered)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    raw = path.read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    types = {"F32": np.float32, "F64": np.float64, "I32": np.int32, "BF16": np.uint16}
    tensors = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        begin, end = t["data_offsets"]
        tensors[name] = np.frombuffer(raw[8 + n + begin:8 + n + end], types[t["dtype"]]).reshape(t["shape"])
    return tensors


def golden_tensors(name, config, params, seed):
    tokens, targets = token_batches(config, seed)
    out = {"tokens": tokens.int().numpy(), "targets": targets.int().numpy()}
    loss64, grads64 = loss_and_gradients(config, params, tokens[0], targets[0], torch.float64)
    loss32, grads32 = loss_and_gradients(config, params, tokens[0], targets[0], torch.float32)
    check_against_transformers(name, config, params, tokens[0], targets[0], loss64, grads64)
    out["loss.fp64"], out["loss.fp32"] = np.array([loss64]), np.array([loss32], dtype=np.float32)
    out.update({f"grad.fp64.{n}": g.numpy() for n, g in grads64.items()})
    out.update({f"grad.fp32.{n}": g.numpy() for n, g in grads32.items()})
    loss16, grads16 = transformers_gradients(config, params, tokens[0], targets[0], torch.bfloat16)
    out["loss.bf16"] = np.array([loss16], dtype=np.float32)
    out.update({f"grad.bf16.{n}": g.view(torch.int16).numpy().view(np.uint16) for n, g in grads16.items()})
    losses, norms, rates = train(config, params, tokens, targets, torch.float64)
    losses32, _, _ = train(config, params, tokens, targets, torch.float32)
    out["curve.loss"], out["curve.grad_norm"], out["curve.lr"] = map(np.array, (losses, norms, rates))
    out["curve.loss.fp32"] = np.array(losses32)
    out["curve.loss.bf16"] = np.array(train_bf16(config, params, tokens, targets))
    apart = max(abs(a - b) / a for a, b in zip(losses, losses32))
    print(f"{name}: {sum(p.numel() for p in params.values())} parameters, loss {losses[0]:.4f} to {losses[-1]:.4f}, "
          f"gradient norm {min(norms):.2f} to {max(norms):.2f}, PyTorch's fp32 curve apart by {apart:.1e}")
    return out


def sgd_tensors(name, config, params, seed):
    tokens, targets = token_batches(config, seed)
    losses, norms, rates = train(config, params, tokens, targets, torch.float64, make_sgd, SGD["lr_times"])
    losses32, _, _ = train(config, params, tokens, targets, torch.float32, make_sgd, SGD["lr_times"])
    apart = max(abs(a - b) / a for a, b in zip(losses, losses32))
    print(f"{name} with SGD: loss {losses[0]:.4f} to {losses[-1]:.4f}, PyTorch's fp32 curve apart by {apart:.1e}")
    curves = {"loss": losses, "grad_norm": norms, "lr": rates, "loss.fp32": losses32}
    return {f"curve.{n}": np.array(x) for n, x in curves.items()}


def packed_tensors(name, config, params, seed):
    """The same batches, with documents packed into their sequences."""
    tokens, targets = token_batches(config, seed)
    positions = packed_positions(seed)
    targets = targets_within(targets, positions)
    out = {"targets": targets.int().numpy(), "positions": positions.int().numpy()}
    first = (config, params, tokens[0], targets[0])
    loss, gradients = loss_and_gradients(*first, torch.float64, positions[0])
    check_against_transformers(name + " packed", *first, loss, gradients, positions[0])
    out["loss.fp64"] = np.array([loss])
    out.update({f"grad.fp64.{n}": g.numpy() for n, g in gradients.items()})
    losses, norms, _ = train(config, params, tokens, targets, torch.float64, positions=positions)
    out["curve.loss"], out["curve.grad_norm"] = np.array(losses), np.array(norms)
    return out


def as_numbers(x):
    """bf16 bits as what they stand for."""
    return (x.astype(np.uint32) << 16).view(np.float32) if x.dtype == np.uint16 else x


def apart(a, b):
    a, b = as_numbers(a), as_numbers(b)
    return float(np.linalg.norm((a - b).ravel()) / np.linalg.norm(b.ravel()))


def check_file(path, tensors):
    """Another PyTorch or processor may round otherwise: fp64 results to 1e-9, fp32 ones to 1e-3, bf16
    ones to a few of its steps."""
    stored = read_safetensors(path)
    assert stored.keys() == tensors.keys(), f"{path}: other tensors"
    for name, x in tensors.items():
        if np.linalg.norm(as_numbers(x).ravel()) > 1e-9:
            limit = 3e-2 if "bf16" in name else 1e-9 if x.dtype == np.float64 and "fp32" not in name else 1e-3
            assert apart(stored[name], x) <= limit, f"{path}: {name} differs by {apart(stored[name], x):.1e}"


def main():
    torch.set_num_threads(1)
    is_check = sys.argv[1:] == ["--check"]
    for seed, (name, config) in enumerate(MODELS.items(), 1):
        folder = HERE / name
        params = initial_parameters(config, seed)
        files = {"model.safetensors": {n: p.numpy() for n, p in params.items()},
                 "golden.safetensors": golden_tensors(name, config, params, seed)}
        if name in SGD_MODELS:
            files["sgd.safetensors"] = sgd_tensors(name, config, params, seed)
        if name in PACKED:
            files["packed.safetensors"] = packed_tensors(name, config, params, seed)
        folder.mkdir(exist_ok=True)
        for file, tensors in files.items():
            (check_file if is_check else write_safetensors)(folder / file, tensors)
        if not is_check:
            (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if not is_check:
        (HERE / "training.json").write_text(json.dumps(TRAINING | {"sgd": SGD}, indent=2) + "\n")


if __name__ == "__main__":
    main()
