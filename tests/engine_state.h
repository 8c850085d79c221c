// SPDX-License-Identifier: Apache-2.0
// Everything an engine holds, as bytes: what "bit-identical" means in these tests.
#pragma once

#include <cstddef>
#include <vector>

#include "headrace/engine.h"

namespace headrace::test {

/// Weights, lo, m and v of every unit, tile after tile.
inline std::vector<std::byte> state_bytes(Engine& engine) {
  std::vector<std::byte> all;
  const auto append = [&](const void* data, size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    all.insert(all.end(), from, from + bytes);
  };
  for (uint32_t u = 0; u < engine.units().size(); ++u) {
    engine.visit_state(UnitId{u}, StateAccess::read, [&](const StateTile& tile) {
      const auto n = size_t(tile.elems);
      append(tile.weights, n * (tile.lo ? 2 : 4));
      if (tile.lo) append(tile.lo, n * 2);
      append(tile.m, n * 4);
      append(tile.v, n * 4);
    });
  }
  return all;
}

}  // namespace headrace::test
