#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a CPU AdamW step of headrace with DeepSpeedCPUAdam and torch.optim.AdamW: medians of paired ratios.

    python3 bench/peers/adam_peers.py [--torch-python /path/to/venv/bin/python] [--threads 1,2]

All work on the same arrays (anonymous memory, huge pages where there are any) with the same hyperparameters and
the same number of threads, in one process for each number of threads. Before anything is timed, three steps of
each pair from the same state must agree: w and m within 1e-5 of each element, v within 2e-5. Then ours and theirs
run one directly after the other; which is first turns around every round, and so does the order of the pairs.

A flat fp32 update is one step on one tensor. An offload step is what a training step with the optimizer's state on
the host needs: theirs are three passes as DeepSpeed's offload makes them (the gradient unscaled in place, the step,
the master cast to bf16), after one more that converts a bf16 gradient to fp32; ours is one call. A split master keeps the weights as the bf16
weight and the lower half of the fp32 one, and needs no copy.

Needs the library libheadrace_adam_peers.so, built with the benchmarks. PyTorch and DeepSpeed are optional: the table
says what is missing. They may live in a virtual environment, whose Python --torch-python names:

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install torch numpy setuptools wheel ninja py-cpuinfo
    DS_BUILD_OPS=0 DS_ACCELERATOR=cpu /tmp/peers/bin/pip install --no-build-isolation deepspeed

DeepSpeed compiles its operator for this machine at the first use, which takes a minute. Close everything else before:
ratios survive a drifting memory bandwidth, not other programs. Writes cpu_adam_peers.md and .json.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKER = pathlib.Path(__file__).resolve().parent / "adam_contenders.py"
DEEPSPEED = "DeepSpeedCPUAdam"
BARS = {
    ("flat fp32 update", DEEPSPEED): 0.97,
    ("flat fp32 update", "torch AdamW fused"): 1.2,
    ("flat fp32 update", "torch AdamW unfused"): 2.0,
    ("offload step, fp32 gradients", DEEPSPEED): 1.4,
    ("offload step, bf16 gradients", DEEPSPEED): 1.8,
    ("offload step, bf16 gradients, split master", DEEPSPEED): 1.8,
}
# An interquartile range of the ratio wider than this share of its median says that the machine was not quiet.
WIDE = 0.15


def cores():
    return len(os.sched_getaffinity(0))


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def run(options, threads):
    """What the contenders found with this number of threads."""
    command = [options.torch_python, WORKER, "--library", options.build / "libheadrace_adam_peers.so",
               "--threads", threads, "--params", options.params, "--rounds", options.rounds,
               "--warmup", options.warmup, "--list-elems", options.list_elems]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    load = os.getloadavg()[0]
    done = subprocess.run([str(c) for c in command], env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"adam_contenders.py with {threads} threads failed:\n{done.stdout[-2000:]}")
    return {**json.loads(done.stdout.splitlines()[-1]), "threads": threads, "load": load}


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return dict(median=middle, low=low, high=high)


def summarize(found):
    rows = []
    for result in found:
        for sample in result["samples"]:
            ratio = quartiles([theirs / ours for ours, theirs in zip(sample["ours_ms"], sample["theirs_ms"])])
            bar = BARS.get((sample["case"], sample["peer"]))
            rows.append(dict(case=sample["case"], peer=sample["peer"], threads=result["threads"],
                             ours_ms=quartiles(sample["ours_ms"]), theirs_ms=quartiles(sample["theirs_ms"]),
                             ratio=ratio, bar=bar, meets=None if bar is None else ratio["median"] >= bar,
                             wide=ratio["high"] - ratio["low"] > WIDE * ratio["median"], check=sample["check"]))
    return rows


def spread(values, digits):
    return f"{values['median']:.{digits}f} ({values['low']:.{digits}f} - {values['high']:.{digits}f})"


def table(rows, found, options):
    about, missing = found[0]["about"], found[0]["missing"]
    loads = ", ".join(f"{result['load']:.1f}" for result in found)
    lines = ["# One AdamW step on the CPU: DeepSpeed, PyTorch and headrace", "",
             f"`bench/peers/adam_peers.py`, {datetime.date.today()}: {options.params:,} parameters, small tensors of "
             f"{options.list_elems:,}; {options.rounds} rounds after {options.warmup} of warm-up, each pair side by "
             f"side. {cpu_name()}, {cores()} cores, {about['headrace']}; load average before each number of threads "
             f"{loads}; "
             f"{found[0].get('huge_mib', 0):,} MiB in huge pages.", "",
             "| case | threads | against | ours ms (quartiles) | theirs ms (quartiles) | theirs / ours (quartiles) "
             "| bar | met |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        bar, met = ("", "") if row["bar"] is None else (f"{row['bar']:.2f}", "yes" if row["meets"] else "no")
        lines.append(f"| {row['case']} | {row['threads']} | {row['peer']} | {spread(row['ours_ms'], 1)} | "
                     f"{spread(row['theirs_ms'], 1)} | {spread(row['ratio'], 2)}{' wide' if row['wide'] else ''} | "
                     f"{bar} | {met} |")
    lines += [f"| all | | {name} | | | {reason} | | |" for name, reason in missing.items()]
    lines += ["", "A ratio is the median of theirs / ours within a round: above 1, headrace is faster. \"wide\": its "
              f"quartiles lie more than {WIDE:.0%} of it apart.", ""]
    if rows:
        worst = {name: max(row["check"].get(name, 0) for row in rows) for name in ("w", "m", "v")}
        lines += ["Before timing, three steps of each pair agreed; largest relative difference of an element: "
                  + ", ".join(f"{name} {value:.1e}" for name, value in worst.items()) + ".", ""]
    return "\n".join(lines + [f"- {name}: {version}" for name, version in about.items()]) + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build",
                        help="folder of libheadrace_adam_peers.so")
    parser.add_argument("--torch-python", default=sys.executable, help="Python that has PyTorch and DeepSpeed")
    parser.add_argument("--threads", default=f"1,{cores()}" if cores() > 1 else "1", help="with commas")
    parser.add_argument("--params", type=int, default=32 << 20, help="about 34 bytes of memory each, and 12 more "
                        "while PyTorch's unfused steps run")
    parser.add_argument("--list-elems", type=int, default=4096, help="elements of a small tensor")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--warmup", type=int, default=2, help="rounds before, not counted")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("quartiles need at least two rounds")
    if not (options.build / "libheadrace_adam_peers.so").exists():
        parser.error(f"{options.build} has no libheadrace_adam_peers.so: build the benchmarks, or name --build")
    return options


def main():
    options = parse()
    found = [run(options, int(threads)) for threads in options.threads.split(",")]
    rows = summarize(found)
    text = table(rows, found, options)
    print("\n" + text)
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "cpu_adam_peers.md").write_text(text)
    machine = dict(cpu=cpu_name(), cores=cores(), isa=found[0]["about"]["headrace"],
                   huge_mib=found[0].get("huge_mib", 0), loads=[result["load"] for result in found])
    raw = [dict(threads=result["threads"], **{key: sample[key] for key in ("case", "peer", "ours_ms", "theirs_ms")})
           for result in found for sample in result["samples"]]
    (options.results / "cpu_adam_peers.json").write_text(json.dumps(
        dict(machine=machine, versions=found[0]["about"], missing=found[0]["missing"], params=options.params,
             list_elems=options.list_elems, rounds=options.rounds, rows=rows, raw=raw), indent=1) + "\n")


if __name__ == "__main__":
    main()
