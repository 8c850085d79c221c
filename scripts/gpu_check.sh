#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks headrace on this machine's GPU and measures it, in under 8 minutes on 16 cores: builds, runs the suites that
# need a GPU, compares kernels, steps and runs, and writes bench/results/gpu_check.json and .md (docs/gpu.md).
#   scripts/gpu_check.sh [--build DIR] [--out DIR] [--only STEP ...] [--dry-run]     --help tells all
# HEADRACE_BUILD=DIR is --build DIR: a build made before, here or, packed with --pack, on another machine.
set -euo pipefail

command -v python3 >/dev/null || { echo "gpu_check: python3 is missing" >&2; exit 1; }
exec python3 "$(dirname "$0")/../bench/gpu/gpu_check.py" "$@"
