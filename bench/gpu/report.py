# SPDX-License-Identifier: Apache-2.0
"""The report of gpu_check: the bars that docs/gpu.md sets, and everything as Markdown."""

#: What the bars ask for, as shares.
GEMM, FORWARD, BACKWARD, MEMORY, COPIES, KEPT = 0.95, 0.50, 0.40, 0.85, 0.95, 0.85


def details_of(document, name):
    """What a step found, also one that failed in part; {} when it was not run."""
    return next((step.get("details") or {} for step in document["steps"] if step["name"] == name), {})


def bar(what, wanted, measured, of):
    """`measured` may be None: not measured."""
    return {"bar": what, "wanted": wanted, "measured": measured, "of": of,
            "met": None if measured is None else measured >= wanted}


def gemm_rate(bench):
    """The GPU's bf16 rate: the large square product, by cuBLAS."""
    squares = [row for row in bench.get("gemm", []) if row["layer"].startswith("square")]
    return max((row["cublas_tflops"] for row in squares), default=None)


def lowest(rows, key, name):
    """(value, "which") of the lowest one."""
    return min(((row[key], name(row)) for row in rows if key in row), default=(None, "not measured"))


def bars(document):
    bench, found = details_of(document, "bench"), []
    found.append(bar("products, of cuBLAS called directly", GEMM, *lowest(
        bench.get("gemm", []), "of_cublas", lambda row: f"{row['layer']}, {row['product']}")))
    rate = gemm_rate(bench)
    at_4096 = [row for row in bench.get("attention", []) if row["head_dim"] == 128 and row["seq"] == 4096]
    for way, wanted in (("forward", FORWARD), ("backward", BACKWARD)):
        share = min((row[f"{way}_tflops"] / rate for row in at_4096), default=None) if rate else None
        found.append(bar(f"attention {way}, of the bf16 product rate", wanted, share,
                         f"head dimension 128, sequence 4096; {rate:.0f} TFLOP/s" if rate else "not measured"))
    found.append(bar("memory-bound kernels, of copy bandwidth", MEMORY,
                     *lowest(bench.get("memory", []), "of_copy", lambda row: row["kernel"])))
    found.append(bar("copies, of the link", COPIES, *lowest(bench.get("copies", []), "of_link",
                                                            lambda row: row["what"])))
    points = [p for p in details_of(document, "tokens curve").get("points", [])
              if p["tokens"] == 16384 and p["place"] == "host"]
    found.append(bar("throughput kept at 16k tokens a step", KEPT,
                     *lowest(points, "kept", lambda p: "weights and optimizer on the host")))
    return found


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        lines.append("| " + " | ".join(str(cell).replace("|", "/").replace("\n", " ") for cell in row) + " |")
    return "\n".join(lines) + "\n"


def number(value, places=2):
    return "" if value is None else f"{value:.{places}f}"


def step_rows(document):
    for step in document["steps"]:
        details = step.get("details") or {}
        notes = [step["reason"][:400]] if "reason" in step else []
        if "tests" in details:
            notes.append(f"{details['tests']} tests, {len(details['skipped'])} skipped")
        if "cuda_against_host" in details:
            notes.append(f"fp32 losses within {details['cuda_against_host']:.1e} of the host device's")
        yield step["name"], step["outcome"], f"{step['seconds']:.0f} s", step["about"], "; ".join(notes)


def bar_rows(document):
    answer = {True: "yes", False: "**no**", None: "not measured"}
    for b in document["bars"]:
        yield b["bar"], f"{b['wanted']:.2f}", number(b["measured"]), answer[b["met"]], b["of"]


def attention_rows(bench, torch):
    theirs = {(row["head_dim"], row["seq"]): row for row in torch.get("attention", [])}
    for row in bench.get("attention", []):
        other = theirs.get((row["head_dim"], row["seq"]), {}) if row["heads"] == row["kv_heads"] else {}
        yield (row["head_dim"], row["seq"], f"{row['heads']} / {row['kv_heads']}", number(row["forward_tflops"], 0),
               number(other.get("forward_tflops"), 0), number(row["backward_tflops"], 0),
               number(other.get("backward_tflops"), 0))


def curve_rows(points):
    for p in points:
        if "step_ms" not in p:
            yield p["tokens"], p["place"], "", "", "", "", p["note"]
            continue
        waits = ", ".join(f"{name} {p['wait_ms'][name]:.1f}" for name in ("nvme", "copy", "optimizer"))
        rates = ", ".join(f"{link} {rate:.1f}" for link, rate in p["gb_per_s"].items())
        yield (p["tokens"], p["place"], p["micro_batch"], f"{p['step_ms']:.1f}", f"{p['tokens_per_s']:.0f}",
               number(p.get("kept")), f"waited ms: {waits}; GB/s: {rates}")


def markdown(document):
    gpu = document["gpu"]
    bench, torch = details_of(document, "bench"), details_of(document, "PyTorch attention")
    build = "; ".join(details_of(document, "version").get("text", [])[-1:])
    parts = [f"# headrace on {gpu['name']}", "",
             f"`scripts/gpu_check.sh`, {document['date']}, commit {document['commit'] or 'unknown'}: compute "
             f"capability {gpu['capability']}, {gpu['memory_bytes'] / 2**30:.0f} GiB, driver for CUDA "
             f"{gpu['driver_cuda']}, {document['cores']} CPU cores; {document['seconds']:.0f} s. {build}", "",
             "## Checks", "", table(("step", "outcome", "time", "what", "notes"), step_rows(document)),
             "## Bars", "", table(("bar", "wanted", "measured", "met", "lowest"), bar_rows(document))]
    if bench.get("gemm"):
        parts += ["## Products, bf16, TFLOP/s", "", table(
            ("layer", "product", "m x n x k", "headrace", "cuBLASLt", "of it", "fastest of 8 algorithms"),
            ((r["layer"], r["product"], f"{r['m']} x {r['n']} x {r['k']}", number(r["tflops"], 0),
              number(r["cublas_tflops"], 0), number(r["of_cublas"]), number(r["cublas_best_tflops"], 0))
             for r in bench["gemm"]))]
    if bench.get("attention"):
        peer = f", beside PyTorch {torch['torch']}" if torch else ""
        parts += [f"## Causal attention, bf16, TFLOP/s{peer}", "", table(
            ("head dimension", "sequence", "heads / kv", "forward", "PyTorch", "backward", "PyTorch"),
            attention_rows(bench, torch))]
    if bench.get("memory"):
        parts += ["## Memory-bound kernels", "", table(("kernel", "GB/s", "of copy"), (
            (r["kernel"], number(r["gb_per_s"], 0), number(r["of_copy"])) for r in bench["memory"]))]
    if bench.get("copies"):
        parts += ["## Host link", "", table(("copy", "GB/s", "of link"), (
            (r["what"], number(r["gb_per_s"], 1), number(r.get("of_link"))) for r in bench["copies"]))]
    curve = details_of(document, "tokens curve")
    if curve:
        parts += [f"## Tokens per step, {curve['model']}, clipping on", "", table(
            ("tokens", "weights and optimizer on", "micro-batch", "step ms", "tokens/s", "kept", "notes"),
            curve_rows(curve["points"]))]
    return "\n".join(parts)
