#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loss curves of the demo with moments in every format (optimizer.moments), beside fp32's.

    python3 bench/moments_curves.py [--steps 280] [--seeds 1 2] [--set KEY=VALUE ...]

Trains examples/demo.toml once for each format and seed, all else equal, and writes bench/results/moments_curves.md:
training loss every so many steps, the validation loss at the end, and bytes of state. The text is the quickstart's
(build/quickstart/text). Seeds show how much of a difference is chance.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
FORMATS = ["fp32", "bf16_m", "bf16", "q8"]
STATE_BYTES = {"fp32": "12", "bf16_m": "10", "bf16": "8", "q8": "5.1"}


def train(options, moments, seed):
    """Training losses by step, validation losses of the end."""
    with tempfile.TemporaryDirectory(dir=options.build) as folder:
        text = options.text
        sets = [f'data.train=["{text}/train.txt"]', f'data.valid=["{text}/valid.txt"]', f'nvme.paths=["{folder}"]',
                f'checkpoint.dir="{folder}/saved"', f'log.dir="{folder}"', f"train.steps={options.steps}",
                f"train.seed={seed}", f'optimizer.moments="{moments}"', *options.set]
        command = [str(options.build / "headrace"), "train", str(ROOT / "examples/demo.toml")]
        for entry in sets:
            command += ["--set", entry]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"moments_curves: {moments}, seed {seed}: {done.stderr.strip()}")
        lines = [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["loss"] for line in lines if line["ev"] == "train"}
    valid = [line["valid_loss"] for line in lines if line["ev"] == "eval"]
    return losses, valid[-1]


def mean_near(losses, step, width=10):
    """Mean of the last `width` steps up to `step`: single batches are noisy."""
    return statistics.mean(loss for at, loss in losses.items() if step - width < at <= step)


def table(options, results):
    marks = [step for step in range(40, options.steps + 1, 40)]
    head = ["moments", "bytes of state", "seed", *(f"step {step}" for step in marks), "validation", "fp32's +"]
    rows = [head, ["---"] * len(head)]
    for moments in FORMATS:
        for seed in options.seeds:
            losses, valid = results[moments, seed]
            rows.append([moments, STATE_BYTES[moments], str(seed), *(f"{mean_near(losses, s):.3f}" for s in marks),
                         f"{valid:.4f}", f"{valid - results['fp32', seed][1]:+.4f}"])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="folder of the program")
    parser.add_argument("--text", type=pathlib.Path, help="folder of train.txt and valid.txt")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/moments_curves.md")
    parser.add_argument("--steps", type=int, default=280)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--set", action="append", default=[], help="a further key for every run")
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.text = (options.text or options.build / "quickstart/text").resolve()
    if not (options.text / "train.txt").exists():
        sys.exit(f"moments_curves: no {options.text}/train.txt: run scripts/demo_text.sh {options.text}")
    results = {}
    for seed in options.seeds:
        for moments in FORMATS:
            results[moments, seed] = train(options, moments, seed)
            print(f"{moments}, seed {seed}: validation loss {results[moments, seed][1]:.4f}", flush=True)
    text = ("# Moments in every format, examples/demo.toml\n\n"
            f"{options.steps} steps in bf16, nats per byte; training losses are means of ten steps. The last column is "
            "the validation loss above fp32's\nwith the same seed. Made by `python3 bench/moments_curves.py`.\n\n"
            + table(options, results) + "\n")
    options.out.write_text(text)
    print(f"written: {options.out}")


if __name__ == "__main__":
    main()
