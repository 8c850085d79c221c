// SPDX-License-Identifier: Apache-2.0
// CUDA's extents and indices.
#pragma once

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1)
      : x(nx), y(ny), z(nz) {}                            // NOLINT: as CUDA's
  constexpr dim3(uint3 n) : x(n.x), y(n.y), z(n.z) {}     // NOLINT: as CUDA's
  constexpr operator uint3() const { return {x, y, z}; }  // NOLINT: as CUDA's
};
