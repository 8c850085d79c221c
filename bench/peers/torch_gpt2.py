#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One PyTorch run of cpu_train_peers.py: GPT-2 124M from random weights, plain AdamW training on the CPU.

Runs with PyTorch 1.13 (Debian's python3-torch) and newer; prints one JSON object with the times of every step.
"Tuned" is what a careful user sets: all cores, denormals flushed, oneDNN on, fused AdamW where the version has
it. Attention is the library's own where it has one. Environment variables (BLAS, AVX-512, OMP_NUM_THREADS) are
set by the caller. Weights are fp32; bf16 means torch.autocast. No gradient clipping, no logging.
"""
import argparse
import json
import math
import os
import time

import torch
from torch import nn
from torch.nn import functional as F

LAYERS, HIDDEN, HEADS, VOCAB, MAX_SEQ = 12, 768, 12, 50257, 1024


def causal_attention(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    seq = q.size(-2)
    hidden = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(q.size(-1)))
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        batch, seq, _ = x.shape
        q, k, v = (t.view(batch, seq, HEADS, HIDDEN // HEADS).transpose(1, 2)
                   for t in self.qkv(self.norm1(x)).split(HIDDEN, dim=2))
        x = x + self.out(causal_attention(q, k, v).transpose(1, 2).reshape(batch, seq, HIDDEN))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, HIDDEN), nn.Embedding(MAX_SEQ, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, labels):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.size(1)))
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.wte.weight.t()
        return F.cross_entropy(logits.float().view(-1, VOCAB), labels.reshape(-1))


def make_optimizer(model, tuned):
    options = dict(lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    if tuned:
        for extra in (dict(fused=True), dict(foreach=True)):
            try:
                optimizer = torch.optim.AdamW(model.parameters(), **options, **extra)
                return optimizer, next(iter(extra))
            except (TypeError, RuntimeError):
                pass
    return torch.optim.AdamW(model.parameters(), **options), "default"


def gemm_gflops(dtype, n=2048, runs=6):
    a, b = (torch.rand(n, n).sub_(0.5).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return 2e-9 * n**3 / best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=("bf16", "fp32"), required=True)
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--gemm", action="store_true", help="also time a square product")
    options = parser.parse_args()
    if options.tuned:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0)))))
        torch.set_flush_denormal(True)
        torch.backends.mkldnn.enabled = True
    torch.manual_seed(1)
    model = Gpt2()
    optimizer, kind = make_optimizer(model, options.tuned)
    data = torch.randint(0, VOCAB, (options.steps, options.batch, options.seq + 1))
    step_ms, cpu_ms, losses = [], [], []
    for window in data:
        start, cpu_start = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.precision == "bf16"):
            loss = model(window[:, :-1], window[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        step_ms.append(1e3 * (time.perf_counter() - start))
        cpu_ms.append(1e3 * (time.process_time() - cpu_start))
    result = dict(step_ms=step_ms, cpu_ms=cpu_ms, losses=losses, torch=torch.__version__,
                  threads=torch.get_num_threads(), optimizer=kind,
                  parameters=sum(p.numel() for p in model.parameters()))
    if options.gemm:
        dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
        result["gemm_gflops"] = gemm_gflops(dtype)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
