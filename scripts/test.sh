#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds headrace and runs its whole test suite. Safe to run again: only what changed is built.
#   scripts/test.sh [extra arguments for ctest]
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/dependencies.sh
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DHEADRACE_CUDA=ON
cmake --build build -j "$(nproc)"
ctest --test-dir build --output-on-failure --no-tests=error -j2 "$@"
