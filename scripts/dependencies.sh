#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes sure that the Debian packages headrace is built from are there: the one list of them. Extra packages may be
# named as arguments. As root it installs what is missing; otherwise it prints the command to run and fails.
set -euo pipefail

packages=(
  build-essential cmake ninja-build pkg-config
  liburing-dev libtbb-dev libisal-dev libdnnl-dev
  ocl-icd-opencl-dev # the CMake file of libdnnl-dev asks for OpenCL
  libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev
  libgtest-dev libgmock-dev libboost-context-dev libbenchmark-dev
  "$@"
)

if ! command -v dpkg-query >/dev/null; then
  # Another distribution: with the tools at hand, CMake finds the libraries or says which one is missing.
  for tool in c++ cmake ninja pkg-config; do
    command -v "$tool" >/dev/null && continue
    echo "headrace: no $tool and no dpkg here; please install the equivalents of: ${packages[*]}" >&2
    exit 1
  done
  echo "headrace: no dpkg here; if CMake misses a library, install the equivalents of: ${packages[*]}" >&2
  exit 0
fi
missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ]; then
  echo "headrace: packages are missing; please run as root (with sudo where there is one):" >&2
  echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
echo "headrace: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq </dev/null
apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null
