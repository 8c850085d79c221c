// SPDX-License-Identifier: Apache-2.0
// The plan's arithmetic: from options and units to every size the engine allocates, before anything is
// allocated. The engine takes exactly these pieces; headrace plan prints them.
#pragma once

#include <span>
#include <vector>

#include "optim/optimizer.h"
#include "swap/state_layout.h"

namespace headrace {

/// Pinned staging. Smaller rungs of the ladder are taken when the host budget is small; results do not
/// change.
struct Staging {
  WindowShape windows;
  size_t slot_bytes = 0;
  size_t weight_slots = 0, gradient_slots = 0,
         activation_slots = 0;  ///< 0 where nothing of the kind is on NVMe
};

struct Sizing {
  std::vector<UnitLayout> unit_layouts;
  std::vector<StateLayout> layouts;
  Placement placement;  ///< gradients decided
  Staging staging;
  Plan plan;
};

/// Throws ConfigError for options that cannot be. Budgets are not checked here.
Sizing size_engine(const EngineOptions& options, std::span<const UnitSpec> units, int world_size);

}  // namespace headrace
