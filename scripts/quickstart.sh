#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# From a bare checkout to a trained model: installs what is missing (as root; otherwise says what to install), builds
# the program, trains the demo on English text with state on all three tiers, and lets the model write. Safe to run
# again: every run is saved in a folder of its own.
#   scripts/quickstart.sh [--set train.steps=50 ...]     more options for plan and train
set -euo pipefail
cd "$(dirname "$0")/.."

work=${HEADRACE_QUICKSTART_DIR:-build/quickstart}
scripts/dependencies.sh
# The text is worth having but not needed: without it the demo reads licence texts.
if ! scripts/dependencies.sh bible-kjv bible-kjv-text 2>/dev/null; then
  echo "headrace: for a better text: apt-get install bible-kjv bible-kjv-text, and remove $work/text"
fi

# Kernels for a GPU take minutes to build: only where one is to be seen, and for that one.
cuda=(-DHEADRACE_CUDA=OFF)
if [ -e /dev/nvidia0 ] || nvidia-smi -L >/dev/null 2>&1; then
  cuda=(-DHEADRACE_CUDA=ON)
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -cd 0-9 || true)
  [ -z "$capability" ] || cuda+=("-DCMAKE_CUDA_ARCHITECTURES=$capability")
fi

mkdir -p build
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release "${cuda[@]}" >build/configure.log 2>&1 ||
  { cat build/configure.log; exit 1; }
echo "Building (about 3 minutes on 2 cores the first time, less on more)"
cmake --build build --target headrace -j "$(nproc)"

scripts/demo_text.sh "$work/text"
run=$work/run-$(date +%Y%m%d-%H%M%S)
mkdir -p "$work/nvme" "$run"

echo
echo "What goes where:"
places=(
  --set "data.train=[\"$work/text/train.txt\"]" --set "data.valid=[\"$work/text/valid.txt\"]"
  --set "nvme.paths=[\"$work/nvme\"]" --set "checkpoint.dir=\"$run\"" --set "log.dir=\"$run\"" "$@"
)
build/headrace plan examples/demo.toml "${places[@]}"
build/headrace train examples/demo.toml "${places[@]}"

echo
echo "A sample:"
build/headrace generate "$run" --prompt "And it came to pass" --tokens 240 --temperature 0.7 --seed 1
echo
echo "Saved run and metrics: $run"
echo "More of it:  build/headrace generate $run --prompt 'In the beginning'"
