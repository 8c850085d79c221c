#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's scaled_dot_product_attention on the shapes of gpu_bench: bf16, causal, TFLOP/s counted alike.

    python3 bench/peers/torch_sdpa.py        one JSON object; exit code 3 without PyTorch or without its GPU

Only scores that exist count, seq (seq + 1) / 2 of each head: two products forward, five backward.
"""
import json
import statistics
import sys

try:
    import torch
    from torch.nn.functional import scaled_dot_product_attention
except ImportError:
    print("PyTorch is not installed", file=sys.stderr)
    sys.exit(3)

TOKENS, HEADS = 16384, 32


def seconds(call, samples=7, sample_seconds=5e-3):
    def sample(calls):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return 1e-3 * begin.elapsed_time(end) / calls

    sample(3)
    calls = min(200, max(1, round(sample_seconds / max(sample(2), 1e-7))))
    return statistics.median(sample(calls) for _ in range(samples))


def measure(head_dim, seq):
    batch = TOKENS // seq
    q, k, v = (torch.randn(batch, HEADS, seq, head_dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
               for _ in range(3))
    dout = torch.randn_like(q)

    def forward():
        return scaled_dot_product_attention(q, k, v, is_causal=True)

    with torch.no_grad():
        forward_seconds = seconds(forward)
    out = forward()
    backward_seconds = seconds(lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))
    tera = 2e-12 * batch * HEADS * head_dim * seq * (seq + 1) / 2
    return {"head_dim": head_dim, "seq": seq, "batch": batch, "heads": HEADS,
            "forward_tflops": 2 * tera / forward_seconds, "backward_tflops": 5 * tera / backward_seconds}


def main():
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU", file=sys.stderr)
        sys.exit(3)
    rows = [measure(head_dim, seq) for head_dim in (64, 96, 128) for seq in (1024, 4096, 16384)]
    print(json.dumps({"torch": torch.__version__, "attention": rows}, indent=1))


if __name__ == "__main__":
    main()
