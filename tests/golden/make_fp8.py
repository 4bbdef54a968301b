"""What PyTorch makes of eight bits: see README.md beside this file.

Usage: make_fp8.py [--check]   writes fp8.txt and fp8_models.txt, or compares with them. The models
are those that make_goldens.py wrote.
"""

import json
import math
import pathlib
import struct
import sys

import torch

import make_goldens
import reference_models as ref

HERE = pathlib.Path(__file__).parent
FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


# --- casts ---


def bits_of(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def interesting(values):
    """Each value, the middle between it and the next, and their neighbours; beyond the largest; and what is no number."""
    bits = set()
    for low, high in zip(values, values[1:]):
        for x in (low, (low + high) / 2, high):
            bits.update(bits_of(x) + d for d in (-1, 0, 1) if bits_of(x) + d >= 0)
    top = values[-1]
    bits.update(bits_of(x) for x in (top * 1.03, top * 1.07, top * 1.2, top * 2, 1e30, 3.4e38, float("inf")))
    bits.update((1, 2, 0x007FFFFF, 0x00800000, 0x7FC00000, 0x7F800001))
    return sorted(bits)


def cast(x, dtype):
    """To nearest even; beyond the largest number that number."""
    top = torch.finfo(dtype).max
    return x.clamp(-top, top).to(dtype)


def cast_lines():
    for name, dtype in FORMATS.items():
        values = torch.arange(256, dtype=torch.uint8).view(dtype).float().tolist()
        for code, value in enumerate(values):
            yield f"{name} value {code:02x} {'nan' if value != value else f'{bits_of(value):08x}'}"
        inputs = interesting(sorted({v for v in values if 0 <= v < math.inf}))
        x = torch.frombuffer(bytearray(struct.pack(f"<{len(inputs)}I", *inputs)), dtype=torch.float32)
        for b, code in zip(inputs, cast(x, dtype).view(torch.uint8).tolist()):
            yield f"{name} cast {b:08x} {code:02x}"


# --- models with products of eight bits, everything else in fp32 ---


def rounded(x, dtype):
    """To the numbers of the format, with the least power of two as unit that holds all of x."""
    amax = x.abs().max().item()
    unit = 2.0 ** math.ceil(math.log2(amax / torch.finfo(dtype).max)) if amax > 0 else 1.0
    return cast(x / unit, dtype).to(x.dtype) * unit


class Product(torch.autograd.Function):
    """x w^T: activations and weights in E4M3, gradients of outputs in E5M2."""

    @staticmethod
    def forward(ctx, x, w):
        x, w = rounded(x, torch.float8_e4m3fn), rounded(w, torch.float8_e4m3fn)
        ctx.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dy = rounded(dy, torch.float8_e5m2)
        return dy @ w, dy.flatten(0, -2).T @ x.flatten(0, -2)


def fp8_linear(x, w, bias=None):
    y = Product.apply(x, w)
    return y if bias is None else y + bias


def pieces(name, x):
    """Tensors as the engine has them: q, k and v apart."""
    return x.split(x.shape[-1] // 3, -1) if "c_attn" in name else [x]


def distances(got, exact):
    """Of all gradients together, and of the worst tensor over its norm."""
    squares, worst = 0.0, 0.0
    for name, g in exact.items():
        for a, b in zip(pieces(name, got[name].double()), pieces(name, g)):
            squares += (a - b).square().sum().item()
            if b.square().sum().item() >= 1e-12:
                worst = max(worst, ((a - b).norm() / b.norm()).item())
    return math.sqrt(squares), worst


def model_line(folder):
    config = json.loads((folder / "config.json").read_text())
    params = {n: torch.from_numpy(x.copy()) for n, x in make_goldens.read_safetensors(folder / "model.safetensors").items()}
    golden = make_goldens.read_safetensors(folder / "golden.safetensors")
    tokens, targets = (torch.from_numpy(golden[n].copy()).long() for n in ("tokens", "targets"))
    exact = {n: torch.from_numpy(golden[f"grad.fp64.{n}"].copy()) for n in params}
    _, gradients = make_goldens.loss_and_gradients(config, params, tokens[0], targets[0], torch.float32)
    off, worst = distances(gradients, exact)
    losses, _, _ = make_goldens.train(config, params, tokens, targets, torch.float32)
    squares = ((torch.tensor(losses).double() - torch.from_numpy(golden["curve.loss"].copy())) ** 2).mean().item()
    return f"{folder.name} {off:.6e} {worst:.6e} {math.sqrt(squares):.6e}"


def check(path, text):
    """Numbers to a tenth: other processors sum in another order, and roundings of eight bits follow."""
    for stored, new in zip(path.read_text().split(), text.split(), strict=True):
        is_number = "." in stored
        assert abs(float(new) / float(stored) - 1) < 0.1 if is_number else stored == new, f"{path}: {stored}, now {new}"


def main():
    torch.set_num_threads(1)
    ref.block_linear = fp8_linear
    folders = [HERE / name for name in make_goldens.MODELS]
    files = {HERE / "fp8.txt": cast_lines(), HERE / "fp8_models.txt": map(model_line, folders)}
    for path, lines in files.items():
        text = "\n".join(lines) + "\n"
        check(path, text) if sys.argv[1:] == ["--check"] else path.write_text(text)


if __name__ == "__main__":
    main()
