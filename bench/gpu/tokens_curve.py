#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens per step against the throughput that is kept when the state does not live on the device.

    bench/gpu/tokens_curve.py --program build/headrace [--seconds 150] [--out curve.json]

Trains a llama of 1.1 billion parameters (--model names another preset) on random tokens for a few steps, with
clipping on: everything on the device; weights and optimizer on the host; both on NVMe. One step has 4k to 256k
tokens. The micro-batch is as large as the device allows with everything on it and the same for all placements,
so are the device budget and the recomputation. Memory sizes come from `headrace plan --json`. Most important
points first (16k); what --seconds does not allow is left out and said so. --tiny takes a model of no
consequence on the host device, to try the script itself. Prints a table; --out adds JSON.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import machine
import runs

MIB = 1 << 20
PLACES = {"device": ("device", "device"), "host": ("host", "host"), "nvme": ("nvme", "nvme")}
#: tokens of a step, in the order of importance
TOKENS = [16384, 65536, 4096, 262144]
TINY = {"family": "llama", "layers": 3, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 128, "vocab": 256}


class Curve:
    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.device = "host" if options.tiny else "cuda"
        self.model = TINY if options.tiny else {"preset": options.model}
        self.seq, self.vocab = (32, 256) if options.tiny else (2048, 32000)
        self.warmup, self.steps = (1, 2) if options.tiny else (2, 5)
        self.end = time.monotonic() + options.seconds
        self.tokens = self.folder / "tokens.bin"
        self.sizes = [64, 256] if options.tiny else TOKENS
        count = max(self.sizes) * (self.warmup + self.steps + 1)
        runs.write_tokens(self.tokens, count, self.vocab)
        # What the driver and the libraries hold stays free.
        self.device_bytes = 512 * MIB if options.tiny else int(machine.find_gpu()["memory_bytes"] * 0.9)
        self.host_bytes = 512 * MIB
        if not options.tiny:
            self.host_bytes = int((options.host_gib * 2**30 or machine.available_memory()) * 0.8)

    def left(self):
        return self.end - time.monotonic()

    def tables(self, place, micro_batch, tokens, host_bytes=None):
        weights, optimizer = PLACES[place]
        return {
            "model": self.model,
            "data": {"train": [str(self.tokens)], "format": "raw", "token_dtype": "uint16", "seq_len": self.seq},
            "train": {"steps": 1000000, "micro_batch": micro_batch,
                      "grad_accum": tokens // (micro_batch * self.seq), "log_every": 1000000},
            "optimizer": {"grad_clip": 1.0, "schedule": "constant", "lr": 1e-4},
            "device": {"kind": self.device, "memory": self.device_bytes},
            "offload": {"weights": weights, "optimizer": optimizer,
                        "host_memory": host_bytes or self.host_bytes},
        }

    def plan(self, place, micro_batch, tokens):
        folder = self.folder / "plan"
        folder.mkdir(exist_ok=True)
        config = runs.config_in(folder, self.tables(place, micro_batch, tokens))
        # The plan is printed also when it is over the budget; that ends with an error of its own.
        done = subprocess.run([str(self.options.program), "plan", "--json", str(config)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        if not done.stdout.strip():
            raise runs.Failed("headrace plan: " + done.stderr.strip())
        return json.loads(done.stdout)

    def micro_batch_for(self, tokens):
        """The largest that fits with everything on the device; beyond 16 sequences nothing is gained."""
        micro_batch = min(tokens // self.seq, 16)
        while micro_batch > 1 and not self.plan("device", micro_batch, tokens)["fits"]:
            micro_batch //= 2
        return micro_batch

    def point(self, tokens, place):
        """One placement at one size: the median of the steps after the warm-up."""
        micro_batch = self.micro_batch_for(tokens)
        plan = self.plan(place, micro_batch, tokens)
        point = {"tokens": tokens, "place": place, "micro_batch": micro_batch,
                 "parameters": plan["param_count"],
                 "planned_bytes": {tier: plan["tiers"][tier]["total_bytes"] for tier in plan["tiers"]}}
        if not plan["fits"]:
            return {**point, "note": "does not fit: " + ", ".join(
                f"{tier} {plan['tiers'][tier]['total_bytes'] / 2**30:.1f} GiB" for tier in ("device", "host"))}
        # As much pinned memory as the plan needs, no more: pinning takes time.
        host_bytes = max(plan["tiers"]["host"]["total_bytes"] + 64 * MIB, 64 * MIB)
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            lines = runs.train_until(self.options.program, folder,
                                     self.tables(place, micro_batch, tokens, host_bytes),
                                     self.warmup + self.steps, min(self.left(), self.options.point_seconds))
        timed = lines[self.warmup:]
        if not timed:
            return {**point, "note": f"{len(lines)} steps within the time"}
        return {**point, **summary(timed, tokens)}

    def measure(self):
        points = []
        for tokens in self.sizes:
            for place in PLACES:
                if self.left() < self.options.least_seconds:
                    points.append({"tokens": tokens, "place": place, "note": "no time left"})
                    continue
                try:
                    points.append(self.point(tokens, place))
                except (runs.Failed, subprocess.TimeoutExpired) as error:
                    points.append({"tokens": tokens, "place": place, "note": str(error), "failed": True})
                self.save(points)
                print(f"{tokens} tokens, {place}: {text_of(points[-1])}", file=sys.stderr, flush=True)
        return self.save(points)

    def save(self, points):
        """With the share that is kept, in order; after every point, so that nothing measured is lost."""
        whole = {p["tokens"]: p["tokens_per_s"] for p in points if p["place"] == "device" and "step_ms" in p}
        points = [{**p, "kept": p["tokens_per_s"] / whole[p["tokens"]]} if "step_ms" in p and p["tokens"] in whole
                  else p for p in points]
        points.sort(key=lambda p: (p["tokens"], list(PLACES).index(p["place"])))
        if self.options.out:
            model = "a tiny llama" if self.options.tiny else self.options.model
            self.options.out.write_text(json.dumps({"model": model, "points": points}, indent=1) + "\n")
        return points


def summary(lines, tokens):
    step_ms = statistics.median(line["step_ms"] for line in lines)
    links = {link: statistics.median(line[link]["gb_per_s"] for line in lines)
             for link in ("h2d", "d2h", "nvme_read", "nvme_write")}
    waits = {what: statistics.median(line["wait_ms"][what] for line in lines) for what in lines[0]["wait_ms"]}
    return {"steps": len(lines), "step_ms": step_ms, "tokens_per_s": 1e3 * tokens / step_ms, "gb_per_s": links,
            "wait_ms": waits, "grad_norm": lines[-1]["grad_norm"], "loss": lines[-1]["loss"],
            "peak_bytes": lines[-1]["peak_bytes"]}


def text_of(point):
    if "step_ms" not in point:
        return point["note"]
    return f"{point['step_ms']:.1f} ms, {point['tokens_per_s']:.0f} tokens/s ({point['steps']} steps)"


def table(points):
    head = ("tokens per step", "weights and optimizer on", "micro-batch", "step ms", "tokens/s",
            "kept of all on device", "waits ms (nvme, copy, optimizer)", "h2d, d2h, read, write GB/s")
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for p in points:
        cells = [f"{p['tokens']}", p["place"]]
        if "step_ms" in p:
            wait = p["wait_ms"]
            cells += [f"{p['micro_batch']}", f"{p['step_ms']:.1f}", f"{p['tokens_per_s']:.0f}",
                      f"{p['kept']:.2f}" if "kept" in p else "",
                      ", ".join(f"{wait[w]:.1f}" for w in ("nvme", "copy", "optimizer")),
                      ", ".join(f"{rate:.1f}" for rate in p["gb_per_s"].values())]
        else:
            cells += ["", "", "", p["note"].replace("|", "/"), "", ""]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True, help="headrace")
    parser.add_argument("--model", default="llama-1b", help="a preset of 32000 tokens")
    parser.add_argument("--seconds", type=float, default=600, help="for everything")
    parser.add_argument("--point-seconds", type=float, default=120, help="for one point")
    parser.add_argument("--least-seconds", type=float, default=10, help="below which no point is begun")
    parser.add_argument("--host-gib", type=float, default=0, help="host memory, where /proc/meminfo tells too little")
    parser.add_argument("--folder", help="on the drive that stands for NVMe; default: the system's temporary folder")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file")
    parser.add_argument("--tiny", action="store_true", help="a tiny model on the host device")
    return parser.parse_args()


def main():
    options = parse()
    if not options.tiny and not machine.find_gpu():
        sys.exit("tokens_curve: this machine has no GPU that CUDA can use (--tiny tries the script without one)")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        points = Curve(options, folder).measure()
    print(table(points))
    measured = [p for p in points if "step_ms" in p]
    sys.exit(1 if not measured or any(p.get("failed") for p in points) else 0)


if __name__ == "__main__":
    main()
