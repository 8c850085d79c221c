# SPDX-License-Identifier: Apache-2.0
"""Runs `headrace train` for the measurements of this folder: configurations, random tokens, metrics.

Used by placements.py and tokens_curve.py. Standard library only.
"""
import array
import ctypes
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time


def end_with_parent():
    """Of a child, before it starts: nothing that hangs may keep a GPU after whoever waited for it was killed."""
    death_signal = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>
    ctypes.CDLL(None).prctl(death_signal, signal.SIGKILL, 0, 0, 0)


class Failed(Exception):
    """What went wrong, in words for the report; what was found, and printed, all the same."""

    def __init__(self, reason, details=None, output=""):
        super().__init__(reason)
        self.details, self.output = details, output


def toml(tables):
    """TOML's numbers, texts, truth values and lists are written as JSON's."""
    return "".join(f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
                   for name, keys in tables.items())


def write_tokens(path, count, vocab, seed=1):
    """Random token ids below vocab (at most 65536), 16 bits each."""
    ids = array.array("H", random.Random(seed).randbytes(2 * count))
    pathlib.Path(path).write_bytes(array.array("H", (i % vocab for i in ids)).tobytes())


def run(command, limit, env=None, accept=(0,)):
    """Standard output of a command that must end well within `limit` seconds; its children end with it."""
    command = [str(c) for c in command]
    name = pathlib.Path(command[1] if command[0] == sys.executable else command[0]).name
    try:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
                                   preexec_fn=end_with_parent)
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from None
    try:
        out, err = process.communicate(timeout=max(limit, 1))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            out, err = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:  # held by the driver: what it does no longer matters
            raise Failed(f"{name}: no end within {limit:.0f} s, not even when killed") from None
        raise Failed(f"{name}: no end within {limit:.0f} s; {last_lines(out + err)}") from None
    if process.returncode not in accept:
        raise Failed(f"{name} ended with {process.returncode}: {last_lines(out + err)}", output=out)
    return out


def last_lines(text, count=6):
    return " / ".join(line.strip() for line in text.strip().splitlines()[-count:])


def train_lines(folder):
    """The metrics of the steps that are done; the last line may be half written."""
    path = pathlib.Path(folder) / "metrics.jsonl"
    if not path.exists():
        return []
    whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in map(json.loads, whole) if line["ev"] == "train"]


def config_in(folder, tables):
    """Writes the configuration; everything the run writes goes into `folder` as well."""
    folder = pathlib.Path(folder)
    (folder / "nvme").mkdir(parents=True, exist_ok=True)
    places = {"nvme": {"paths": [str(folder / "nvme")]}, "checkpoint": {"dir": str(folder / "saved")},
              "log": {"dir": str(folder)}}
    for name, keys in places.items():
        tables = {**tables, name: {**keys, **tables.get(name, {})}}
    path = folder / "run.toml"
    path.write_text(toml(tables))
    return path


def train(program, folder, tables, limit):
    """A whole run; returns the metrics of its steps."""
    run([program, "train", config_in(folder, tables)], limit)
    return train_lines(folder)


def train_until(program, folder, tables, steps, limit):
    """The metrics of the first `steps` steps of a run that is then killed: ending well would write a saved run.

    Returns what there is when the limit passes, which may be fewer steps.
    """
    log = pathlib.Path(folder) / "output"
    command = [str(program), "train", str(config_in(folder, tables))]
    with open(log, "w") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True,
                                   preexec_fn=end_with_parent)
    end = time.monotonic() + limit
    try:
        while len(train_lines(folder)) < steps and time.monotonic() < end:
            if process.poll() is not None:
                if process.returncode == 0:
                    break
                text = last_lines(log.read_text(errors="replace"))
                raise Failed(f"headrace train ended with {process.returncode}: {text}")
            time.sleep(0.05)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return train_lines(folder)[:steps]
