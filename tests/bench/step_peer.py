"""A step of GPT-2 124M in PyTorch, as the peer of tests/bench/step.c.

Usage: step_peer.py BATCH SEQUENCE THREADS fp32|bf16

The same model, batch, loss, clipping and AdamW as the engine's, written as PyTorch is used:
scaled_dot_product_attention, the fused optimizer where there is one for the processor, autocast for
bf16. For each line on standard input makes a step and prints its seconds.
"""

import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, POSITIONS, WIDTH, HEADS, LAYERS = 50257, 1024, 768, 12, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (p.view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2)
                   for p in self.qkv(self.norm1(x)).split(WIDTH, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCAB).float(), targets.view(-1))


def optimizer_of(model):
    options = dict(lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    try:
        return torch.optim.AdamW(model.parameters(), fused=True, **options)
    except RuntimeError:
        return torch.optim.AdamW(model.parameters(), foreach=True, **options)


def main():
    batch, seq, threads = map(int, sys.argv[1:4])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = GPT2()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.normal_(0, 0.02)
    optimizer = optimizer_of(model)
    at = torch.arange(batch * seq)
    ids, targets = (at * 7919 % VOCAB).view(batch, seq), ((at + 1) * 7919 % VOCAB).view(batch, seq)

    def step():
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=sys.argv[4] == "bf16"):
            loss = model(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return time.perf_counter() - start

    step()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(step(), flush=True)


main()
