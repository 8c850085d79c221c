# SPDX-License-Identifier: Apache-2.0
"""The steps of gpu_check: what is built, tested and measured, each with its times in seconds.

`needs` is kept for a step whatever the steps before it take; `limit` is the most that it may take.

A step is a function of (check, limit) that returns what the report shows, raises Failed with the reason, or
raises NotHere with the reason why there is nothing to do. `check` is the GpuCheck of gpu_check.py: folders, options
and how to run a command.
"""
import collections
import json
import pathlib
import re
import shutil
import sys

import machine
from runs import Failed

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: Test programs that are about the GPU as a whole.
KERNELS, TRAINING = "cuda_kernels_test", "cuda_train_test"
ON_A_GPU = re.compile("cuda|gpu|nccl", re.IGNORECASE)
#: What the sanitizers run, which slow kernels and their loading down many times over: one small test for each
#: kind of kernel, of the formats and sizes that take the way with most shared memory and with edges inside a tile.
SANITIZED = (
    "AttentionOnGpu.ForwardAndBackwardAgreeWithTheHost/small_documents_bf16",  # asynchronous copies, tensor cores
    "LinearOnGpu.AllThreeProductsAgreeWithTheHost/small_bf16",  # the bias's sums over rows, beside cuBLASLt
    "NormOnGpu.LayerNormAgreesWithTheHost/small_bf16",  # odd rows: sums of a whole block
    "PointwiseOnGpu.GradientHandOverHasTheHostsBitsAndSums/small_bf16",  # staged through two halves of an area
    "EmbeddingOnGpu.HasTheHostsBits/small_bf16",  # token rows: lists of rows in shared memory
    "CrossEntropyOnGpu.LossAndGradientAgreeWithTheHost/small_bf16",  # token rows: running maximum of a block
)
TORCH_IS_MISSING = 3  # exit code of torch_sdpa.py


class NotHere(Exception):
    """Why a step has nothing to do here."""


Step = collections.namedtuple("Step", "name kind limit needs run about")


def time_for(step, after, left):
    """Seconds that a step may take of those left: what the steps after it need is kept for them.

    Where there is not enough for all, the first ones get theirs.
    """
    spare = left - sum(later.needs for later in after)
    return min(step.limit, max(spare, min(step.needs, left)))


def find_gpu(check, limit):
    check.gpu = machine.find_gpu()
    if not check.gpu:
        raise Failed("the CUDA driver shows no GPU")
    return check.gpu


def configure(check, limit):
    if check.options.build:
        raise NotHere("a build was given")
    missing = [tool for tool in ("cmake", "ninja", "nvcc", "pkg-config") if not tool_path(tool)]
    if missing:
        raise Failed(f"{', '.join(missing)} missing here: build where they are and give the folder (--build DIR)")
    text = check.command([
        "cmake", "-S", ROOT, "-B", check.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        "-DHEADRACE_CUDA=ON", "-DHEADRACE_BUILD_BENCH=ON", "-DCMAKE_CUDA_ARCHITECTURES=native",
        f"-DCMAKE_CUDA_COMPILER={tool_path('nvcc')}"], limit)
    return {"text": [line for line in text.splitlines() if "headrace:" in line]}


def tool_path(tool):
    return shutil.which(tool) or shutil.which(tool, path="/usr/local/cuda/bin")


def compile_all(check, limit):
    if check.options.build:
        raise NotHere("a build was given")
    check.program("build.ninja")
    targets = check.command(["ninja", "-C", check.build, "-t", "targets", "all"], 30)
    wanted = [t for t in ("headrace", "gpu_bench", KERNELS, TRAINING, *suite_programs())
              if re.search(rf"^{t}:", targets, re.MULTILINE)]
    check.command(["ninja", "-C", check.build, *wanted], limit)
    return {"targets": wanted}


def suite_programs(root=ROOT):
    """Test programs of the other folders that need a GPU: their names say so."""
    lists = [path for path in sorted((root / "tests").glob("*/CMakeLists.txt"))
             if path.parent.name not in ("cuda", "emulation")]
    names = [name for path in lists for name in re.findall(r"headrace_test\((\w+)", path.read_text())]
    return [name for name in names if ON_A_GPU.search(name)]


def version(check, limit):
    text = check.command([check.program("headrace"), "--version"], limit)
    line = next((line for line in text.splitlines() if line.startswith("CUDA")), "CUDA none")
    if "none" in line:
        raise Failed("this build has no CUDA: " + line)
    return {"text": text.splitlines()}


def google_test(check, program, test_filter, limit, under=()):
    """Runs a test program; {"tests", "skipped", "failed"} by name. Skips stay visible in the report."""
    path = check.program(f"tests/{program}")
    report = check.work / f"{program}.json"
    report.unlink(missing_ok=True)
    command = [*under, path, f"--gtest_filter={test_filter}", f"--gtest_output=json:{report}",
               "--gtest_brief=1"]
    problem = None
    try:
        check.command(command, limit)
    except Failed as failure:
        problem = str(failure)
    tests = read_report(report, program)
    if problem and not tests["failed"]:
        raise Failed(problem)
    return tests


def read_report(report, program):
    if not report.exists():
        return {"tests": 0, "skipped": [], "failed": {}}
    suites = json.loads(report.read_text())["testsuites"]
    tests = [(f"{program}: {suite['name']}.{test['name']}", test) for suite in suites
             for test in suite["testsuite"] if test.get("status") == "RUN"]
    failed = {name: test["failures"][0]["failure"] for name, test in tests if test.get("failures")}
    skipped = [name for name, test in tests if test.get("result") == "SKIPPED"]
    return {"tests": len(tests), "skipped": skipped, "failed": failed}


def judged(results):
    """Sums up runs of test programs; fails when a test failed or when none was run at all."""
    total = sum(r["tests"] for r in results)
    skipped = [name for r in results for name in r["skipped"]]
    failed = {name: text for r in results for name, text in r["failed"].items()}
    if failed:
        name, text = next(iter(failed.items()))
        raise Failed(f"{len(failed)} of {total} tests failed: {name}: {' '.join(text.split())[:300]}",
                     {"failed": sorted(failed)})
    if total == len(skipped):
        raise Failed(f"no test was run ({total} skipped)")
    return {"tests": total, "skipped": skipped}


def conformance(check, limit):
    return judged([google_test(check, name, "*", limit) for name in suite_programs() if "nccl" not in name])


def nccl(check, limit):
    if "NCCL" not in check.command([check.program("headrace"), "--version"], limit):
        raise NotHere("the build has no NCCL")
    return judged([google_test(check, name, "*", limit) for name in suite_programs() if "nccl" in name])


def kernels(check, limit):
    return judged([google_test(check, KERNELS, "*", limit)])


def fixture(check, limit):
    return judged([google_test(check, TRAINING, "*AgainstPyTorch*", limit)])


def training(check, limit):
    return judged([google_test(check, TRAINING, "-*AgainstPyTorch*", limit)])


def sanitized(tool):
    def run(check, limit):
        path = tool_path("compute-sanitizer")
        if not path:
            raise NotHere("compute-sanitizer is not here")
        under = [path, "--tool", tool, "--error-exitcode", "9"]
        return judged([google_test(check, KERNELS, ":".join(f"Cuda/{name}" for name in SANITIZED), limit, under)])
    return run


def printed(check, command, limit):
    """The JSON object that a command prints, also one that ends with a failure."""
    try:
        return json.loads(check.command(command, limit))
    except Failed as failure:
        if not failure.output.strip():
            raise
        return json.loads(failure.output)


def placements(check, limit):
    result = printed(check, [sys.executable, ROOT / "bench/gpu/placements.py", "--program", check.program("headrace"),
                             "--device", "cuda"], limit)
    if result["differences"]:
        raise Failed("; ".join(result["differences"]), result)
    return result


def bench(check, limit):
    result = printed(check, [check.program("gpu_bench")], limit)
    if "errors" in result:
        raise Failed("; ".join(f"{name}: {what}" for name, what in result["errors"].items()), result)
    return result


def sdpa(check, limit):
    pythons = [check.options.torch_python] if check.options.torch_python else [sys.executable, "python3"]
    for python in pythons:
        text = check.command([python, ROOT / "bench/peers/torch_sdpa.py"], limit, (0, TORCH_IS_MISSING), plain=True)
        if text.strip():
            return json.loads(text)
    raise NotHere("no PyTorch with a GPU")


def curve(check, limit):
    out = check.work / "tokens_curve.json"
    out.unlink(missing_ok=True)
    problem = None
    try:
        check.command([sys.executable, ROOT / "bench/gpu/tokens_curve.py", "--program", check.program("headrace"),
                       "--seconds", f"{limit - 10:.0f}", "--folder", check.work, "--out", out], limit)
    except Failed as failure:
        problem = str(failure)
    if not out.exists():
        raise Failed(problem)
    result = json.loads(out.read_text())
    failed = [p for p in result["points"] if p.get("failed")]
    if failed:
        raise Failed("; ".join(f"{p['tokens']} {p['place']}: {p['note']}" for p in failed), result)
    return result


#: In this order: the checks that tell most first, and last the curve, which has a use for any time that is left.
STEPS = [
    Step("GPU", "check", 20, 2, find_gpu, "the CUDA driver shows one"),
    Step("configure", "check", 60, 15, configure, "cmake -DHEADRACE_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native"),
    Step("build", "check", 1800, 145, compile_all, "headrace, gpu_bench and the test programs"),
    Step("version", "check", 20, 3, version, "headrace --version names CUDA"),
    Step("conformance", "check", 90, 20, conformance, "streams, devices, products on CUDA; HEADRACE_REQUIRE_GPU=1"),
    Step("NCCL with one rank", "check", 40, 5, nccl, "the communicator's conformance suite on NCCL"),
    Step("kernels", "check", 90, 40, kernels, f"{KERNELS}: every kernel against the host's"),
    Step("PyTorch fixture", "check", 60, 10, fixture, f"{TRAINING}: ten steps of two tiny models, clipping on"),
    Step("training steps", "check", 90, 30, training, f"{TRAINING}: the same bits for every placement, resuming"),
    Step("placements of runs", "check", 60, 20, placements, "bench/gpu/placements.py: headrace train, clipping on"),
    Step("bench", "measurement", 90, 45, bench, "gpu_bench: products, attention, memory-bound kernels, copies"),
    Step("memcheck", "check", 60, 20, sanitized("memcheck"), f"compute-sanitizer, {len(SANITIZED)} small tests"),
    Step("racecheck", "check", 60, 20, sanitized("racecheck"), f"compute-sanitizer, {len(SANITIZED)} small tests"),
    Step("PyTorch attention", "measurement", 60, 10, sdpa, "bench/peers/torch_sdpa.py"),
    Step("tokens curve", "measurement", 400, 90, curve, "bench/gpu/tokens_curve.py: throughput kept, 1.1 B llama"),
]
