#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains one small llama with its state on the device, on the host and on NVMe, and compares bit for bit.

    bench/gpu/placements.py --program build/headrace --device cuda

Clipping is on, and some steps clip and some do not. Losses, norms and the saved weights, masters and moments
must be the same bits for every placement and for a second run; with --device cuda a run in fp32 on the host
device must agree within rounding. Prints one JSON object; exit code 1 when something differs.
"""
import argparse
import hashlib
import json
import pathlib
import sys
import tempfile

import runs

VOCAB, SEQ, STEPS = 512, 128, 8
PLACES = {"device": ("device", "device", "device", "auto"), "device again": ("device", "device", "device", "auto"),
          "host": ("host", "host", "host", "auto"), "nvme": ("nvme", "nvme", "nvme", "nvme")}


def tables(tokens, device, precision, place, clip):
    weights, optimizer, activations, gradients = place
    return {
        "model": {"family": "llama", "layers": 4, "hidden": 256, "heads": 4, "kv_heads": 2, "ffn": 704,
                  "vocab": VOCAB},
        "data": {"train": [str(tokens)], "format": "raw", "token_dtype": "uint16", "seq_len": SEQ},
        "train": {"steps": STEPS, "micro_batch": 2, "grad_accum": 2, "seed": 7, "precision": precision,
                  "log_every": 1000},
        "optimizer": {"lr": 3e-3, "grad_clip": clip, "warmup_steps": 2},
        "device": {"kind": device, "memory": "512MiB"},
        "offload": {"weights": weights, "optimizer": optimizer, "activations": activations,
                    "gradients": gradients, "host_memory": "256MiB"},
    }


def one_run(program, folder, name, settings, limit):
    """Losses and norms of the steps, and a digest of everything that the saved run holds of the state."""
    place = pathlib.Path(folder) / name.replace(" ", "-")
    place.mkdir()
    lines = runs.train(program, place, settings, limit)
    saved = sorted((place / "saved").glob("step-*/unit-*.bin"))
    if len(lines) != STEPS or not saved:
        raise runs.Failed(f"{name}: {len(lines)} steps of {STEPS} and {len(saved)} saved files")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in saved)).hexdigest()
    return {"losses": [line["loss"] for line in lines], "norms": [line["grad_norm"] for line in lines],
            "state": digest}


def clip_between(norms):
    """A limit that some steps pass and some do not."""
    ordered = sorted(norms)
    return (ordered[len(ordered) // 2 - 1] + ordered[len(ordered) // 2]) / 2


def compare(options, folder):
    tokens = pathlib.Path(folder) / "tokens.bin"
    runs.write_tokens(tokens, STEPS * 4 * SEQ + 1, VOCAB)
    result, differences = {"device": options.device, "runs": {}}, []

    def go(name, device, precision, place, clip):
        settings = tables(tokens, device, precision, place, clip)
        return one_run(options.program, folder, name, settings, options.limit)

    clip = clip_between(go("unclipped", options.device, "bf16", PLACES["device"], 0.0)["norms"])
    for name, place in PLACES.items():
        here = result["runs"][name] = go(name, options.device, "bf16", place, clip)
        first = result["runs"]["device"]
        differences += [f"{name}: other {what}" for what in ("losses", "norms", "state")
                        if here[what] != first[what]]
    clipped = sum(norm > clip for norm in result["runs"]["device"]["norms"])
    if not 0 < clipped < STEPS:
        differences.append(f"{clipped} of {STEPS} steps clipped: not a test of clipping")
    if options.device == "cuda":
        ours, hosts = (go(f"fp32 {device}", device, "fp32", PLACES["device"], clip)["losses"]
                       for device in ("cuda", "host"))
        result["cuda_against_host"] = max(abs(a / b - 1) for a, b in zip(ours, hosts))
        if result["cuda_against_host"] > 1e-3:
            differences.append(f"fp32 losses are {result['cuda_against_host']:.1e} from the host device's")
    return {**result, "clipped_steps": clipped, "differences": differences}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True, help="headrace")
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--limit", type=float, default=60, help="seconds for a run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = compare(options, folder)
        except runs.Failed as error:
            result = {"differences": [str(error)]}
    print(json.dumps(result, indent=1))
    sys.exit(1 if result["differences"] else 0)


if __name__ == "__main__":
    main()
