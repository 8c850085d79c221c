// SPDX-License-Identifier: Apache-2.0
// Where a shard lives: the only object that knows. A Place is an address on the device or the host, or an
// extent of a store; code above asks for the tier of one unit's one kind of state and never for a
// configuration flag.
#pragma once

#include <array>
#include <vector>

#include "headrace/nvme.h"
#include "swap/state_layout.h"

namespace headrace {

struct Place {
  Tier tier = Tier::device;
  std::byte* memory = nullptr;   ///< device or host tier
  nvme::Store* store = nullptr;  ///< nvme tier
  nvme::ExtentId extent{};
};

class Residency {
 public:
  explicit Residency(size_t units) : places_(units) {}
  [[nodiscard]] const Place& of(UnitId unit, StateKind kind) const {
    return places_[size_t(unit)][size_t(kind)];
  }
  void set(UnitId unit, StateKind kind, const Place& place) { places_[size_t(unit)][size_t(kind)] = place; }

 private:
  std::vector<std::array<Place, kStateKinds>> places_;
};

}  // namespace headrace
