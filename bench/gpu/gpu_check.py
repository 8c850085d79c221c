#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks headrace on this machine's GPU and measures it, within minutes; run by scripts/gpu_check.sh.

Builds, runs the suites that need a GPU, compares kernels, training steps and whole runs, then measures: see
docs/gpu.md. Writes gpu_check.json and gpu_check.md. A step that fails or runs out of its time is recorded and
the rest still runs, in the time that is kept for it. Exit code 0: every check passed (measurements only inform);
1: not, or not for lack of time, or no GPU; 2: usage.

Where the build's packages are missing, make a build elsewhere and give it: --pack FILE.tar.xz packs one with the
shared libraries it needs, CUDA's own excepted, and --build FILE.tar.xz (or HEADRACE_BUILD) unpacks and uses it.
"""
import argparse
import datetime
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

import machine
import report
import runs
import steps

#: Of every Linux machine with a compiler, or of its driver and CUDA.
NOT_PACKED = re.compile(r"^(ld-linux|linux-vdso|libc\.|libm\.|libdl|librt|libpthread|libgcc_s|libstdc|"
                        r"libcuda|libcublas|libnccl)")


class GpuCheck:
    def __init__(self, options):
        self.options = options
        self.begin = time.monotonic()
        build = options.build or steps.ROOT / "build-gpu"
        self.build = (self.unpacked(build) if build.is_file() else build).resolve()
        self.work = self.build / "gpu_check"
        self.gpu = None
        self.results = []
        self.step_end = float("inf")

    def unpacked(self, archive):
        """The folder that a packed build is unpacked into, anew, in the source tree."""
        folder = steps.ROOT / "build-gpu-packed"
        try:
            with tarfile.open(archive) as packed:
                shutil.rmtree(folder, ignore_errors=True)
                packed.extractall(folder)
        except (tarfile.TarError, lzma.LZMAError, EOFError):
            self.options.usage(f"{self.options.build_given}: neither a folder nor a whole packed build")
        return folder

    def program(self, name):
        """Where a program of the build is, or what to do about it."""
        path = self.build / name
        if path.exists():
            return path
        if self.options.build:
            raise runs.Failed(f"{self.options.build_given}: no {name} in it")
        remedy = ": run without --only once, or give a build (--build DIR)" if self.options.only else ""
        raise runs.Failed(f"{path} is not there{remedy}")

    def elapsed(self):
        return time.monotonic() - self.begin

    def command(self, command, limit, accept=(0,), plain=False):
        """Standard output. The commands of a step share its time.

        `plain`: without our folders of libraries, which are not for other programs.
        """
        limit = max(min(limit, self.step_end - time.monotonic()), 1)
        # Swapped state of tests lies on the drive of the build: /tmp is memory on many machines.
        env = {**os.environ, "HEADRACE_REQUIRE_GPU": "1", "OMP_WAIT_POLICY": "passive",
               "HEADRACE_TEST_DATA": str(steps.ROOT / "tests" / "fixtures"), "TMPDIR": str(self.work),
               "LD_LIBRARY_PATH": machine.library_path(self.build)}
        return runs.run(command, limit, os.environ if plain else env, accept)

    def perform(self, step, after=()):
        """{"name", "kind", "outcome", "seconds", ...}; outcome: passed, failed, not here, no time.

        A step with less than half of what it needs is not begun: it would fail for its time, not for what it finds.
        """
        limit = steps.time_for(step, after, 60 * self.options.minutes - self.elapsed())
        result = {"name": step.name, "kind": step.kind, "about": step.about}
        if limit < step.needs / 2:
            return {**result, "outcome": "no time", "seconds": 0.0, "reason":
                    f"{max(limit, 0):.0f} s of {60 * self.options.minutes:.0f} s left, it needs {step.needs} s: give "
                    f"more (--minutes N), or run it alone (--only '{step.name}')"}
        begin = time.monotonic()
        self.step_end = begin + limit
        try:
            result.update(outcome="passed", details=step.run(self, limit))
        except steps.NotHere as reason:
            result.update(outcome="not here", reason=str(reason))
        except runs.Failed as failure:
            result.update(outcome="failed", reason=str(failure), details=failure.details)
        except Exception as error:  # whatever it is, the other steps still say something
            result.update(outcome="failed", reason=f"{type(error).__name__}: {error}")
        return {**result, "seconds": round(time.monotonic() - begin, 1)}

    def run(self, chosen, after_step):
        for index, step in enumerate(chosen):
            print(f"[{self.elapsed():4.0f} s] {step.name} ...", flush=True)
            if step is not steps.STEPS[0]:
                self.work.mkdir(parents=True, exist_ok=True)
            result = self.perform(step, chosen[index + 1:])
            self.results.append(result)
            took = f" in {result['seconds']:.1f} s" if result["outcome"] != "no time" else ""
            reason = f": {result['reason']}" if "reason" in result else ""
            print(f"         {result['outcome']}{took}{reason}", flush=True)
            if step is steps.STEPS[0] and not self.gpu:
                return
            after_step()

    def document(self):
        commit = ""
        if shutil.which("git"):
            done = subprocess.run(["git", "-C", str(steps.ROOT), "describe", "--always", "--dirty"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            commit = done.stdout.strip()
        return {"date": datetime.date.today().isoformat(), "commit": commit, "gpu": self.gpu,
                "cores": len(os.sched_getaffinity(0)), "seconds": round(self.elapsed(), 1), "steps": self.results}


def packed_programs(build):
    """All that gpu_check runs; the tests of NCCL where the build has them."""
    programs = ["headrace", "gpu_bench"]
    programs += [f"tests/{name}" for name in (steps.KERNELS, steps.TRAINING, *steps.suite_programs())]
    missing = [program for program in programs if not (build / program).exists()]
    needed = [program for program in missing if "nccl" not in program]
    if needed:
        sys.exit(f"gpu_check: {', '.join(needed)} not built in {build}: ninja -C {build}")
    return [program for program in programs if program not in missing]


def pack(build, archive):
    """What gpu_check needs of a build, stripped, with the shared libraries of other packages in lib/."""
    programs = packed_programs(build)
    with tempfile.TemporaryDirectory() as folder, tarfile.open(archive, "w:xz") as packed:
        libraries = {}
        for program in programs:
            stripped = pathlib.Path(folder) / "program"
            runs.run(["strip", "-o", stripped, build / program], 60)
            packed.add(stripped, program)
            for line in runs.run(["ldd", build / program], 60).splitlines():
                name, _, path = line.strip().partition(" => ")
                if path.startswith("/") and not NOT_PACKED.match(name):
                    libraries[name] = pathlib.Path(path.split(" (")[0]).resolve()
        for name, path in sorted(libraries.items()):
            packed.add(path, f"lib/{name}")
    print(f"{archive}: {len(programs)} programs, {len(libraries)} libraries, "
          f"{archive.stat().st_size / 2**20:.0f} MiB")


def chosen_steps(options):
    names = [step.name for step in steps.STEPS]
    for name in options.only or []:
        if name not in names:
            options.usage(f"--only {name}: there are {', '.join(names)}")
    chosen = [step for step in steps.STEPS if not options.only or step.name in options.only or step.name == "GPU"]
    # What a given build leaves nothing to do for needs no time.
    building = (steps.configure, steps.compile_all) if options.build else ()
    return [step._replace(needs=0) if step.run in building else step for step in chosen]


def parse():
    parser = argparse.ArgumentParser(prog="scripts/gpu_check.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, metavar="DIR",
                        help="a build of this source, or a packed one (default: HEADRACE_BUILD, or one is made)")
    parser.add_argument("--out", type=pathlib.Path, default=steps.ROOT / "bench" / "results", metavar="DIR",
                        help="where gpu_check.json and gpu_check.md go")
    parser.add_argument("--minutes", type=float, default=8, help="for everything (default: 8)")
    parser.add_argument("--only", action="append", metavar="STEP",
                        help="only this step, with the build that is there; may be given several times")
    parser.add_argument("--torch-python", help="Python that has PyTorch (default: the first one in PATH)")
    parser.add_argument("--pack", type=pathlib.Path, metavar="FILE", help="pack what is needed of --build, and stop")
    parser.add_argument("--dry-run", action="store_true", help="print the steps and stop")
    options = parser.parse_args()
    options.usage = parser.error
    if not options.minutes >= 1:
        parser.error("--minutes must be at least 1")
    options.build_given = f"--build {options.build}"
    if not options.build and os.environ.get("HEADRACE_BUILD"):
        options.build = pathlib.Path(os.environ["HEADRACE_BUILD"])
        options.build_given = f"HEADRACE_BUILD={options.build}"
    if options.build and not options.build.exists():
        parser.error(f"{options.build_given}: no such folder or file")
    return options


def all_passed(results):
    """A check that had no time did not pass; measurements only inform."""
    return all(r["outcome"] in ("passed", "not here") for r in results if r["kind"] == "check")


def write_report(check, folder):
    document = check.document()
    document["bars"] = report.bars(document)
    text = report.markdown(document)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu_check.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / "gpu_check.md").write_text(text)
    return text


def main():
    options = parse()
    chosen = chosen_steps(options)
    if options.dry_run:
        for step in chosen:
            print(f"{step.name:<20} {step.kind:<12} {step.needs:>3} s kept, up to {step.limit:>4} s  {step.about}")
        print(f"together at most {options.minutes:g} minutes, of which {sum(s.needs for s in chosen)} s are kept")
        return 0
    if options.pack:
        pack(options.build or steps.ROOT / "build-gpu", options.pack)
        return 0
    check = GpuCheck(options)
    # After every step: a machine that is taken away leaves what was found so far.
    check.run(chosen, lambda: write_report(check, options.out))
    if not check.gpu:
        gpu = check.results[0]
        why = gpu["reason"] if gpu["outcome"] == "no time" else "this machine has no GPU that CUDA can use"
        print(f"gpu_check: {why}; nothing was checked. Without a GPU: ctest --test-dir build -L emulated",
              file=sys.stderr)
        return 1
    print("\n" + write_report(check, options.out) + f"\nwritten: {options.out / 'gpu_check.md'}")
    return 0 if all_passed(check.results) else 1


if __name__ == "__main__":
    sys.exit(main())
