// SPDX-License-Identifier: Apache-2.0
// Everything an engine holds, as bytes: what "bit-identical" means in these tests.
#pragma once

#include <cstddef>
#include <vector>

#include "headrace/engine.h"

namespace headrace::test {

/// Every array of every unit, tile after tile.
inline std::vector<std::byte> state_bytes(Engine& engine) {
  std::vector<std::byte> all;
  const auto append = [&](const void* data, size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    all.insert(all.end(), from, from + bytes);
  };
  for (uint32_t u = 0; u < engine.units().size(); ++u) {
    engine.visit_state(UnitId{u}, StateAccess::read, [&](const StateTile& tile) {
      for (const adam::ArrayInfo& info : adam::ArrayList(engine.format()))
        append(tile.arrays.array(info.array), info.bytes_for(size_t(tile.elems)));
    });
  }
  return all;
}

}  // namespace headrace::test
