#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times optimizer steps of headrace, DeepSpeed and PyTorch on the same arrays; adam_peers.py runs it.

    OMP_NUM_THREADS=2 python3 bench/peers/adam_contenders.py --library build/libheadrace_adam_peers.so --threads 2

One process for one number of threads, so that every OpenMP team in it starts with that number. First each pair
makes three steps from the same state and the results are compared; a pair that differs is an error. Then the
rounds: in each, every pair runs once, one directly after the other, and the next round turns both orders around.
Gradients are written anew before every step that is timed, since unscaling in place changes them. The last line
of the output is one JSON object.
"""
import argparse
import contextlib
import ctypes
import dataclasses
import importlib.metadata
import json
import mmap
import os
import pathlib
import re
import sys
import time

LR, BETAS, EPS, DECAY = 1e-3, (0.9, 0.999), 1e-8, 0.01
SCALE = 0.37 / 1024  # 1 / loss scale and the clip coefficient
WEIGHTS = {"fp32": 0, "fp32_copy": 1, "split": 2}
GRADIENTS = {"fp32": 0, "bf16": 1}


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    gradient: str  # what the step is given
    weights: str  # how headrace keeps them; all but "fp32" leave bf16 weights too and unscale the gradient
    listed: bool  # many small tensors instead of one
    peers: tuple

    @property
    def offload(self):
        return self.weights != "fp32"


TORCH = ("torch AdamW fused", "torch AdamW unfused", "torch AdamW foreach")
CASES = [
    Case("flat fp32 update", "fp32", "fp32", False, ("DeepSpeedCPUAdam", *TORCH)),
    Case("offload step, fp32 gradients", "fp32", "fp32_copy", False, ("DeepSpeedCPUAdam", TORCH[0])),
    Case("offload step, bf16 gradients", "bf16", "fp32_copy", False, ("DeepSpeedCPUAdam", TORCH[0])),
    Case("offload step, bf16 gradients, split master", "bf16", "split", False, ("DeepSpeedCPUAdam",)),
    Case("list of small tensors, fp32 update", "fp32", "fp32", True, ("DeepSpeedCPUAdam", *TORCH)),
]


class Arrays:
    """What all contenders work on: anonymous memory of its own for each array, in huge pages where there are any."""

    def __init__(self, count, seed):
        self.count = count
        self.w, self.m, self.v, self.grad32, self.fresh32 = (self.array(torch.float32) for _ in range(5))
        self.copy, self.grad16, self.fresh16 = (self.array(torch.bfloat16) for _ in range(3))
        self.hi, self.lo = (self.array(torch.int16) for _ in range(2))
        self.generator = torch.Generator().manual_seed(seed)
        # Magnitudes from 0.02 to 0.1, so that an error relative to each weight means something.
        self.weights = self.random(0.02, 0.1) * self.signs()
        self.fresh16.copy_(self.random(1e-4, 1e-2) * self.signs() / SCALE)
        self.fresh32.copy_(self.fresh16)
        self.reset()

    def array(self, dtype):
        memory = mmap.mmap(-1, self.count * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
        return torch.frombuffer(memory, dtype=dtype)

    def random(self, low, high):
        return torch.empty(self.count).uniform_(low, high, generator=self.generator)

    def signs(self):
        return torch.empty(self.count).bernoulli_(0.5, generator=self.generator) * 2 - 1

    def reset(self):
        self.w.copy_(self.weights)
        self.m.zero_()
        self.v.zero_()
        self.copy.zero_()
        bits = self.w.view(torch.int32)
        self.lo.copy_(bits)  # keeps the lower half
        self.hi.copy_((bits + 0x8000) >> 16)

    def merged(self):
        """The weights of a split master, see headrace/dtype.h."""
        upper = self.hi.int() - (self.lo < 0).int()
        return (upper << 16 | self.lo.int() & 0xffff).view(torch.float32)

    def write_gradient(self, case, factor=1.0):
        """Offloaded gradients are still scaled, others are not."""
        target, source = (self.grad16, self.fresh16) if case.gradient == "bf16" else (self.grad32, self.fresh32)
        torch.mul(source, factor if case.offload else factor * SCALE, out=target)


class Tensor(ctypes.Structure):
    _fields_ = [("count", ctypes.c_uint64)] + [(name, ctypes.c_void_p)
                                               for name in ("w", "copy", "hi", "lo", "m", "v", "grad")]


class Step(ctypes.Structure):
    _fields_ = [("weights", ctypes.c_int32), ("moments", ctypes.c_int32), ("gradient", ctypes.c_int32),
                ("reserved", ctypes.c_int32), ("t", ctypes.c_uint64)] + [
                    (name, ctypes.c_double)
                    for name in ("lr", "beta1", "beta2", "eps", "weight_decay", "grad_scale")]


class Library:
    def __init__(self, path, threads):
        self.calls = ctypes.CDLL(str(path))
        for name, result, arguments in (("error", ctypes.c_char_p, ()), ("isa", ctypes.c_char_p, ()),
                                        ("close", None, (ctypes.c_void_p,)),
                                        ("open", ctypes.c_void_p, (ctypes.c_int32,)),
                                        ("threads", ctypes.c_int32, (ctypes.c_void_p,)),
                                        ("update", ctypes.c_int32, (ctypes.c_void_p, ctypes.POINTER(Step),
                                                                    ctypes.POINTER(Tensor), ctypes.c_uint64))):
            call = getattr(self.calls, f"headrace_peers_{name}")
            call.restype, call.argtypes = result, arguments
        self.team = self.calls.headrace_peers_open(threads)
        if not self.team:
            self.fail()
        if self.calls.headrace_peers_threads(self.team) != threads:
            sys.exit(f"headrace was granted {self.calls.headrace_peers_threads(self.team)} of {threads} threads")

    def fail(self):
        sys.exit(self.calls.headrace_peers_error().decode())

    def close(self):
        self.calls.headrace_peers_close(self.team)

    def isa(self):
        return self.calls.headrace_peers_isa().decode()

    def update(self, step, tensors):
        if self.calls.headrace_peers_update(self.team, ctypes.byref(step), tensors, len(tensors)):
            self.fail()


class Ours:
    """One pass: the whole offload step is one call."""

    def __init__(self, library, arrays, case, list_elems):
        self.library, self.arrays, self.case = library, arrays, case
        grad = arrays.grad16 if case.gradient == "bf16" else arrays.grad32
        size = list_elems if case.listed else arrays.count
        self.tensors = (Tensor * -(-arrays.count // size))()
        for index, tensor in enumerate(self.tensors):
            first = index * size
            tensor.count = min(size, arrays.count - first)
            for name, array in (("w", arrays.w), ("m", arrays.m), ("v", arrays.v), ("copy", arrays.copy),
                                ("hi", arrays.hi), ("lo", arrays.lo), ("grad", grad)):
                setattr(tensor, name, array.data_ptr() + first * array.element_size())
        self.parameters = Step(weights=WEIGHTS[case.weights], gradient=GRADIENTS[case.gradient],
                               lr=LR, beta1=BETAS[0], beta2=BETAS[1], eps=EPS, weight_decay=DECAY,
                               grad_scale=SCALE if case.offload else 1.0)

    def step(self):
        self.parameters.t += 1
        self.library.update(self.parameters, self.tensors)

    def weights(self):
        """The fp32 weights and their bf16 form."""
        if self.case.weights == "split":
            return self.arrays.merged(), self.arrays.hi.view(torch.bfloat16)
        return self.arrays.w, self.arrays.copy


class Theirs:
    """A torch optimizer with what surrounds it in an offload step: gradients converted to fp32, unscaled in
    place, the step, the weights cast to bf16."""

    def __init__(self, make, first_step, arrays, case, list_elems):
        self.arrays, self.case = arrays, case
        pieces = [torch.split(array, list_elems if case.listed else arrays.count)
                  for array in (arrays.w, arrays.grad32, arrays.m, arrays.v)]
        parameters = [torch.nn.Parameter(w) for w in pieces[0]]
        self.optimizer = make(parameters)
        for parameter, grad, m, v in zip(parameters, *pieces[1:]):
            parameter.grad = grad
            self.optimizer.state[parameter] = {"step": first_step(), "exp_avg": m, "exp_avg_sq": v}

    @staticmethod
    def settings():
        return dict(lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)

    def step(self):
        with torch.no_grad():
            if self.case.gradient == "bf16":
                self.arrays.grad32.copy_(self.arrays.grad16)
            if self.case.offload:
                self.arrays.grad32.mul_(SCALE)
        self.optimizer.step()
        if self.case.offload:
            with torch.no_grad():
                self.arrays.copy.copy_(self.arrays.w)

    def weights(self):
        return self.arrays.w, self.arrays.copy


def torch_peers():
    kinds = {"fused": dict(fused=True), "unfused": dict(foreach=False), "foreach": dict(foreach=True)}
    return {f"torch AdamW {kind}":
            (lambda parameters, flags=flags: torch.optim.AdamW(parameters, **Theirs.settings(), **flags),
             lambda: torch.tensor(0.0)) for kind, flags in kinds.items()}


def deepspeed_peer():
    """({name: how it is made}, what it is, why it is missing)"""
    try:
        version = importlib.metadata.version("deepspeed")
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        from deepspeed.ops.op_builder import CPUAdamBuilder
        simd = re.sub("-D|_", "", CPUAdamBuilder().simd_width()) or "no SIMD"
        CPUAdamBuilder().load()  # compiled at the first use
    except Exception as error:  # whatever its installation lacks
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return {}, {}, {"deepspeed": "not installed" if isinstance(
            error, importlib.metadata.PackageNotFoundError) else f"cannot be used: {reason}"}

    def make(parameters):
        return DeepSpeedCPUAdam(parameters, adamw_mode=True, **Theirs.settings())

    return {"DeepSpeedCPUAdam": (make, lambda: 0)}, {"deepspeed": f"{version}, {simd}"}, {}


def three_steps(contender, arrays, case):
    arrays.reset()
    for factor in (1.0, -0.5, 0.25):
        arrays.write_gradient(case, factor)
        contender.step()
    w, copy = contender.weights()
    return dict(w=w.clone(), m=arrays.m.clone(), v=arrays.v.clone(), copy=copy.float())


def compare(make_pair, arrays, case):
    """Largest relative differences of a pair after three steps."""
    ours, theirs = (three_steps(contender, arrays, case) for contender in make_pair(arrays, case))
    found = {name: float(((ours[name] - theirs[name]).abs() / theirs[name].abs()).max()) for name in ("w", "m", "v")}
    # 1 - beta2 in fp32 is 1.3e-5 off the number it stands for, which one of the peers uses for v.
    wrong = [name for name, limit in (("w", 1e-5), ("m", 1e-5), ("v", 2e-5)) if not found[name] <= limit]
    if case.offload:
        found["copies_that_differ"] = float((ours["copy"] != theirs["copy"]).float().mean())
        if not (torch.allclose(ours["copy"], theirs["copy"], rtol=2**-7, atol=0)
                and found["copies_that_differ"] <= 1e-2):
            wrong.append("copy")
    return found, wrong


def timed(contender, arrays, case, settle_s):
    arrays.write_gradient(case)
    time.sleep(settle_s)  # until waiting threads of other teams no longer spin
    start = time.perf_counter()
    contender.step()
    return 1e3 * (time.perf_counter() - start)


def measure(pairs, arrays, options):
    """Adds the milliseconds of every round to each pair's record."""
    for number in range(-options.warmup, options.rounds):
        for case, peer, contenders, record in pairs if number % 2 == 0 else reversed(pairs):
            order = (0, 1) if number % 2 == 0 else (1, 0)
            for which in order:
                took = timed(contenders[which], arrays, case, options.settle_ms / 1e3)
                if number >= 0:
                    record[("ours_ms", "theirs_ms")[which]].append(took)
        print(f"threads {options.threads}, round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)


def huge_mib():
    with contextlib.suppress(OSError):
        found = re.search(r"AnonHugePages:\s+(\d+) kB", pathlib.Path("/proc/self/smaps_rollup").read_text())
        return int(found.group(1)) // 1024 if found else 0
    return 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libheadrace_adam_peers.so")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--params", type=int, default=32 << 20)
    parser.add_argument("--list-elems", type=int, default=4096, help="elements of a small tensor")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--warmup", type=int, default=2, help="rounds before, not counted")
    parser.add_argument("--settle-ms", type=float, default=20.0, help="pause before every step that is timed")
    return parser.parse_args()


def run(library, options):
    result = dict(about={"headrace": library.isa()}, missing={}, samples=[])
    if torch is None:
        result["missing"] = {"torch": "not installed", "deepspeed": "needs torch"}
        return result
    torch.set_num_threads(options.threads)
    peers, about, result["missing"] = deepspeed_peer()
    peers.update(torch_peers())
    result["about"].update(about, torch=f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")

    def pair(peer):
        return lambda arrays, case: (Ours(library, arrays, case, options.list_elems),
                                     Theirs(*peers[peer], arrays, case, options.list_elems))

    wanted = [(case, peer) for case in CASES for peer in case.peers if peer in peers]
    small = Arrays(min(options.params, (1 << 18) + 1003), 1)
    for case, peer in wanted:
        found, wrong = compare(pair(peer), small, case)
        if wrong:
            sys.exit(f"{case.name}: {', '.join(wrong)} of headrace and {peer} differ after 3 steps: {found}")
        result["samples"].append(dict(case=case.name, peer=peer, check=found, ours_ms=[], theirs_ms=[]))
    arrays = Arrays(options.params, 2)
    pairs = [(case, peer, pair(peer)(arrays, case), record)
             for (case, peer), record in zip(wanted, result["samples"])]
    result["huge_mib"] = huge_mib()
    measure(pairs, arrays, options)
    return result


def main():
    options = parse()
    with contextlib.closing(Library(options.library, options.threads)) as library:
        print(json.dumps(run(library, options)))


if __name__ == "__main__":
    # Ninja, which compiles DeepSpeed's operator, stands beside the Python of a virtual environment.
    os.environ["PATH"] = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    try:
        import torch
    except ImportError:
        torch = None
    main()
