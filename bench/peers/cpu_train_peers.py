#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the same GPT-2 124M shape on the CPU with PyTorch and with headrace, and compares tokens per second.

    /usr/bin/python3 bench/peers/cpu_train_peers.py [--torch-python /path/to/venv/bin/python] [--threads 1]

Random weights and tokens, AdamW, everything in headrace's device memory. The contenders run one after the
other, each a process of its own, for some rounds (A B C A B C ...), so that a busy machine is busy for all of
them; in between, square matrix products are measured. Figures are medians over all timed steps of all rounds,
with the lowest and highest median of a round beside them. Writes cpu_train_peers.md and .json.

CPU time counts what all threads of a process used, waiting ones that spin included. With --threads 1 it is what
a step takes when nothing else runs, and rates and peaks are made from it, so that a machine which others use can
be measured too; the files are then cpu_train_peers.1_thread.*.

PyTorch runs as it comes ("default") and tuned: all cores, AVX-512 dispatch, an OpenMP BLAS where one is found,
fused AdamW where the version has it (see torch_gpt2.py). headrace rounds gradients, takes their norm and checks
them in every step, which PyTorch here does not.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKER = pathlib.Path(__file__).resolve().parent / "torch_gpt2.py"
VOCAB = 50257
BLAS_FOLDERS = [f"/usr/lib/x86_64-linux-gnu/openblas-{kind}" for kind in ("openmp", "pthread")]

CONFIG = """
[model]
preset = "gpt2-124m"
[data]
train = ["{tokens}"]
format = "raw"
token_dtype = "uint16"
seq_len = {seq}
[train]
steps = {steps}
micro_batch = {batch}
precision = "{precision}"
log_every = 1000000
[optimizer]
grad_clip = 0.0
schedule = "constant"
threads = {threads}
[device]
kind = "host"
memory = "{memory}"
[offload]
weights = "device"
optimizer = "device"
activations = "device"
[checkpoint]
dir = "{log}/saved"
[log]
dir = "{log}"
"""


def cores():
    return len(os.sched_getaffinity(0))


def run(command, env=None):
    done = subprocess.run([str(c) for c in command], env={**os.environ, **(env or {})},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


class Torch:
    def __init__(self, options, precision, tuned, blas):
        self.python, self.precision, self.tuned = options.torch_python, precision, tuned
        self.name = f"PyTorch {'tuned' if tuned else 'default'} {precision}"
        self.env = {"OMP_NUM_THREADS": "1"} if options.threads == 1 else {}
        if tuned and blas:
            self.env["LD_LIBRARY_PATH"] = str(blas)
        if tuned:
            self.env.update(ATEN_CPU_CAPABILITY="avx512", OMP_NUM_THREADS=str(options.threads))

    def steps(self, batch, seq, steps):
        """[(wall ms, CPU ms) of a step]"""
        command = [self.python, WORKER, "--precision", self.precision,
                   "--batch", batch, "--seq", seq, "--steps", steps]
        result = json.loads(run(command + (["--tuned"] if self.tuned else []), self.env).splitlines()[-1])
        self.about = f"torch {result['torch']}, {result['threads']} threads, AdamW {result['optimizer']}"
        return list(zip(result["step_ms"], result["cpu_ms"]))


class Headrace:
    def __init__(self, options, precision):
        self.program, self.memory, self.threads = options.build / "headrace", options.memory, options.threads
        self.precision = precision
        self.name = f"headrace {precision}"
        self.about = run([self.program, "--version"]).splitlines()[0]

    def steps(self, batch, seq, steps):
        """[(wall ms, CPU ms) of a step]"""
        with tempfile.TemporaryDirectory() as folder:
            tokens = pathlib.Path(folder) / "tokens.bin"
            draw = random.Random(1)
            ids = (draw.randrange(VOCAB) for _ in range(steps * batch * seq + 1))
            tokens.write_bytes(b"".join(i.to_bytes(2, "little") for i in ids))
            config = pathlib.Path(folder) / "run.toml"
            config.write_text(CONFIG.format(tokens=tokens, seq=seq, steps=1000000, batch=batch, log=folder,
                                            precision=self.precision, memory=self.memory,
                                            threads=self.threads))
            metrics = pathlib.Path(folder) / "metrics.jsonl"
            with subprocess.Popen([self.program, "train", config], stdout=subprocess.DEVNULL,
                                  env={**os.environ, "OMP_NUM_THREADS": str(self.threads)}) as program:
                cpu_ms = watch(program, metrics, steps)
                program.kill()  # ending well would write a saved run of 1.5 GB
            wall_ms = [line["step_ms"] for line in train_lines(metrics)]
            return [(wall, cpu_ms[i + 1] - cpu_ms[i]) for i, wall in enumerate(wall_ms[:steps])]


def watch(program, metrics, steps):
    """CPU time of the process when each of the steps was reported, from a start of 0."""
    seen = [0.0]
    while len(seen) <= steps:
        if program.poll() is not None:
            sys.exit("headrace ended early")
        fields = pathlib.Path(f"/proc/{program.pid}/stat").read_text().rsplit(")", 1)[1].split()
        now = 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        seen += [now] * (len(train_lines(metrics)) + 1 - len(seen))
        time.sleep(0.02)
    return seen


def train_lines(path):
    if not path.exists():
        return []
    whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in map(json.loads, whole) if line["ev"] == "train"]


def spread(rounds, what):
    """Median of all steps, lowest and highest median of a round; what: 0 wall, 1 CPU."""
    medians = [statistics.median(step[what] for step in steps) for steps in rounds]
    return statistics.median(step[what] for steps in rounds for step in steps), min(medians), max(medians)


def measure(contenders, shapes, options):
    """{shape: {name: [steps of a round]}}, [peaks of a round], [load average at the start of a round]"""
    times = {shape: {c.name: [] for c in contenders} for shape in shapes}
    peaks, loads = [], []
    for number in range(options.rounds):
        loads.append(os.getloadavg()[0])
        for shape in shapes:
            # With one thread this program counts CPU time by itself.
            team = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(options.threads)}
            peaks.append(json.loads(run([options.build / "kernels_bench", "--peaks"], team)))
            for contender in contenders:
                if number >= options.default_rounds and " default " in contender.name:
                    continue
                steps = contender.steps(*shape, options.warmup + options.steps)[options.warmup:]
                times[shape][contender.name].append(steps)
                wall, cpu = (statistics.median(step[what] for step in steps) for what in (0, 1))
                print(f"round {number + 1}  {shape[0]} x {shape[1]}  {contender.name:<24} "
                      f"step {wall:6.0f} ms, CPU {cpu:6.0f} ms", flush=True)
    return times, peaks, loads


def summarize(times, peaks, what, parameters):
    best = {key: max(p[key] for p in peaks) for key in peaks[0]}
    bf16_peak = max(best["bf16_native_gflops"], best["bf16_converted_gflops"])
    rows = []
    for shape, by_name in times.items():
        for name, rounds in by_name.items():
            middle, low, high = spread(rounds, what)
            gflops = 6e-6 * parameters * shape[0] * shape[1] / middle
            tuned, _, _ = spread(by_name[f"PyTorch tuned {name.split()[-1]}"], what)
            rows.append(dict(shape=f"{shape[0]} x {shape[1]}", name=name, ms=middle, low_ms=low, high_ms=high,
                             wall_ms=spread(rounds, 0)[0], cpu_ms=spread(rounds, 1)[0],
                             tokens_per_s=1e3 * shape[0] * shape[1] / middle, versus_tuned=tuned / middle,
                             gflops=gflops, of_bf16_peak=gflops / bf16_peak,
                             of_fp32_peak=gflops / best["fp32_gflops"]))
    return rows, best


def table(rows, peaks, loads, contenders, options):
    by = "CPU time" if options.threads == 1 else "wall time"
    head = ("shape", "contender", "step ms (rounds)", "tokens/s", "of tuned PyTorch", "6PT GFLOP/s",
            "of bf16 peak", "of fp32 peak")
    lines = ["# GPT-2 124M on the CPU: PyTorch and headrace", "",
             f"`bench/peers/cpu_train_peers.py`, {datetime.date.today()}: {options.rounds} rounds of "
             f"{options.steps} timed steps after {options.warmup} of warm-up, interleaved; {options.threads} of "
             f"{cores()} cores, {cpu_name()}; load average at the start of the rounds "
             f"{', '.join(f'{load:.1f}' for load in loads)}. Rates are by {by}.", "",
             "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for r in rows:
        cells = (r["shape"], r["name"], f"{r['ms']:.0f} ({r['low_ms']:.0f} - {r['high_ms']:.0f})",
                 f"{r['tokens_per_s']:.0f}", f"{r['versus_tuned']:.2f}", f"{r['gflops']:.0f}",
                 f"{r['of_bf16_peak']:.2f}", f"{r['of_fp32_peak']:.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "6PT is 6 x parameters x tokens per second. Peaks are 2048^3 products measured between the "
              f"contenders (best): fp32 {peaks['fp32_gflops']:.0f}, bf16 by oneDNN itself "
              f"{peaks['bf16_native_gflops']:.0f}, bf16 converted to fp32 {peaks['bf16_converted_gflops']:.0f} "
              "GFLOP/s; the bf16 peak is the higher of the last two.", ""]
    lines += [f"- {c.name}: {c.about}" for c in contenders]
    return "\n".join(lines) + "\n"


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build",
                        help="folder of headrace and kernels_bench")
    parser.add_argument("--torch-python", default="/usr/bin/python3", help="Python that has PyTorch")
    parser.add_argument("--blas", type=pathlib.Path, help="folder of the libblas.so.3 that PyTorch is to load")
    parser.add_argument("--shapes", default="1x512,4x64", help="batch x sequence, with commas")
    parser.add_argument("--precisions", default="bf16,fp32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--default-rounds", type=int, default=1, help="rounds in which untuned PyTorch runs")
    parser.add_argument("--threads", type=int, default=cores(), help="of everything; 1: compare CPU time")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--memory", default="6GiB", help="headrace's device.memory")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results")
    return parser.parse_args()


def main():
    options = parse()
    shapes = [tuple(int(n) for n in shape.split("x")) for shape in options.shapes.split(",")]
    blas = options.blas or next((f for f in BLAS_FOLDERS if os.path.exists(f + "/libblas.so.3")), None)
    contenders = []
    for precision in options.precisions.split(","):
        contenders.append(Headrace(options, precision))
        contenders.append(Torch(options, precision, True, blas))
        if options.default_rounds:
            contenders.append(Torch(options, precision, False, blas))
    times, peaks, loads = measure(contenders, shapes, options)
    parameters = VOCAB * 768 + 1024 * 768 + 12 * (12 * 768 * 768 + 13 * 768) + 2 * 768
    rows, best = summarize(times, peaks, 1 if options.threads == 1 else 0, parameters)
    text = table(rows, best, loads, contenders, options)
    print("\n" + text)
    options.results.mkdir(parents=True, exist_ok=True)
    suffix = ".1_thread" if options.threads == 1 else ""
    (options.results / f"cpu_train_peers{suffix}.md").write_text(text)
    raw = [dict(shape=shape, name=name, rounds_wall_and_cpu_ms=rounds)
           for shape, by_name in times.items() for name, rounds in by_name.items()]
    (options.results / f"cpu_train_peers{suffix}.json").write_text(
        json.dumps(dict(rows=rows, peaks=peaks, loads=loads, raw=raw), indent=1) + "\n")


if __name__ == "__main__":
    main()
