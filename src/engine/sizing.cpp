// SPDX-License-Identifier: Apache-2.0
#include "engine/sizing.h"

#include <algorithm>
#include <unordered_set>

#include "headrace/error.h"
#include "swap/activation_store.h"
#include "zero/gradients.h"
#include "zero/partition.h"
#include "zero/weights.h"

namespace headrace {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kMinSlots = 4, kMaxSlots = 32;

struct Rung {
  int64_t window_tiles;
  size_t windows;
  size_t slot_bytes;
  size_t max_slots;
};
constexpr Rung kLadder[] = {{8, 3, 2 * kMiB, kMaxSlots},
                            {8, 3, kMiB, 8},
                            {4, 3, kMiB, 6},
                            {2, 3, kMiB / 2, kMinSlots},
                            {1, 3, kMiB / 4, kMinSlots},
                            {1, 2, kMiB / 8, kMinSlots}};

uint64_t sum_bytes(const Sizing& s, StateKind kind) {
  uint64_t total = 0;
  for (const StateLayout& layout : s.layouts) total += round_up(layout.bytes(kind));
  return total;
}

uint64_t activation_bytes(const EngineOptions& o, Tier tier) {
  return uint64_t(o.activation_count) * ActivationStore::stride(o.activation_bytes, tier);
}

Staging staging_on(const Rung& rung, const Sizing& s, const EngineOptions& o) {
  Staging staging;
  staging.windows = {rung.window_tiles, rung.windows};
  staging.slot_bytes = rung.slot_bytes;
  uint64_t largest = 0;
  for (const StateLayout& layout : s.layouts) largest = std::max(largest, layout.bytes(StateKind::weights));
  const size_t ahead = size_t(largest) * std::max(1u, o.prefetch_units) / rung.slot_bytes + 2;
  if (s.placement.weights == Tier::nvme) {
    staging.weight_slots = std::clamp(ahead, kMinSlots, std::max(kMinSlots, rung.max_slots));
  }
  if (s.placement.gradients == Tier::nvme) staging.gradient_slots = kMinSlots;
  if (s.placement.activations == Tier::nvme && o.activation_count > 0) staging.activation_slots = kMinSlots;
  return staging;
}

void add(Plan& plan, Tier tier, std::string what, uint64_t bytes, std::string key) {
  if (bytes > 0) plan.items.push_back({tier, std::move(what), bytes, std::move(key)});
}

void plan_state(Sizing& s) {
  add(s.plan, s.placement.weights, "weights", sum_bytes(s, StateKind::weights), "offload.weights");
  add(s.plan, s.placement.optimizer, "optimizer state", sum_bytes(s, StateKind::optimizer),
      "offload.optimizer");
  add(s.plan, *s.placement.gradients, "gradient shards", sum_bytes(s, StateKind::gradients),
      "offload.gradients");
}

void plan_device(Sizing& s, const EngineOptions& o) {
  if (s.placement.weights != Tier::device) {
    std::vector<size_t> class_of;
    uint64_t bytes = 0;
    for (const WeightClass& c : weight_classes(s.layouts, o.prefetch_units, class_of)) {
      bytes += c.slots * round_up(c.bytes);
    }
    add(s.plan, Tier::device, "gathered weights", bytes, "offload.prefetch_units");
  }
  add(s.plan, Tier::device, "gradient accumulators and pieces",
      Gradients::device_bytes(s.layouts, s.placement.gradients == Tier::device), "model.hidden");
  if (s.placement.activations != Tier::device) {
    const uint64_t slots = std::min(o.activation_slots, o.activation_count);
    add(s.plan, Tier::device, "activation checkpoint slots", slots * round_up(o.activation_bytes),
        "train.micro_batch");
  }
  add(s.plan, Tier::device, "workspace", round_up(o.workspace_bytes), "train.micro_batch");
}

void plan_host(Sizing& s) {
  const Staging& g = s.staging;
  add(s.plan, Tier::host, "optimizer windows",
      g.windows.count * Optimizer::window_bytes(s.layouts, s.placement, g.windows.tiles),
      "offload.host_memory");
  add(s.plan, Tier::host, "pinned slots",
      (g.weight_slots + g.gradient_slots + g.activation_slots) * g.slot_bytes, "offload.host_memory");
  add(s.plan, Tier::host, "gradient norms", round_up(Gradients::host_bytes()), "offload.host_memory");
}

void plan_on(const Rung& rung, Sizing& s, const EngineOptions& o) {
  s.plan.items.clear();
  s.staging = staging_on(rung, s, o);
  plan_state(s);
  add(s.plan, s.placement.activations, "activation checkpoints", activation_bytes(o, s.placement.activations),
      "offload.activations");
  plan_device(s, o);
  plan_host(s);
}

/// The largest staging that the host budget holds; the smallest when none does.
void plan_within_budget(Sizing& s, const EngineOptions& o) {
  for (const Rung& rung : kLadder) {
    plan_on(rung, s, o);
    if (s.plan.total(Tier::host) <= o.host_memory) return;
  }
}

/// Without a word from the options: beside an optimizer on the device, else in host memory, else, when that
/// does not hold them and NVMe needs less of it, on NVMe.
void decide_gradients(Sizing& s, const EngineOptions& o) {
  if (o.placement.gradients) return plan_within_budget(s, o);
  s.placement.gradients = s.placement.optimizer == Tier::device ? Tier::device : Tier::host;
  plan_within_budget(s, o);
  const uint64_t on_host = s.plan.total(Tier::host);
  if (s.placement.gradients == Tier::device || on_host <= o.host_memory || o.nvme.paths.empty()) return;
  s.placement.gradients = Tier::nvme;
  plan_within_budget(s, o);
  if (s.plan.total(Tier::host) < on_host) return;
  s.placement.gradients = Tier::host;
  plan_within_budget(s, o);
}

void spread_over_paths(Sizing& s, const EngineOptions& o) {
  s.plan.nvme_path_bytes.assign(o.nvme.paths.size(), 0);
  if (o.nvme.paths.empty()) return;
  for (size_t unit = 0; unit < s.layouts.size(); ++unit) {
    uint64_t& path = s.plan.nvme_path_bytes[unit % o.nvme.paths.size()];
    if (s.placement.weights == Tier::nvme) path += round_up(s.layouts[unit].bytes(StateKind::weights));
    if (s.placement.optimizer == Tier::nvme) path += round_up(s.layouts[unit].bytes(StateKind::optimizer));
    if (s.placement.gradients == Tier::nvme) path += round_up(s.layouts[unit].bytes(StateKind::gradients));
  }
  if (s.placement.activations == Tier::nvme) s.plan.nvme_path_bytes[0] += activation_bytes(o, Tier::nvme);
}

/// Unit names become file names on every tier alike.
void check_names(std::span<const UnitSpec> units) {
  constexpr const char* kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  std::unordered_set<std::string> seen;
  for (const UnitSpec& unit : units) {
    const bool valid = !unit.name.empty() && unit.name[0] != '.' &&
                       unit.name.find_first_not_of(kAllowed) == std::string::npos;
    if (!valid)
      throw ConfigError("", "unit name '" + unit.name + "': letters, digits, '.', '-' and '_' only");
    if (!seen.insert(unit.name).second) throw ConfigError("", "unit name '" + unit.name + "' is taken twice");
  }
}

void check_format(const EngineOptions& o) {
  const adam::Format format = state_format(o);
  if (!adam::offered(format)) {
    throw ConfigError("optimizer.moments",
                      o.moments == adam::MomentFormat::q8 && o.precision == DType::f32
                          ? "q8 goes with 24-bit weights: set train.precision to bf16"
                          : "this optimizer.rule does not keep its moments in that format: "
                            "lion has fp32 and bf16_m, adagrad fp32, adamw and adam all");
  }
  const bool plain = o.rule == adam::Rule::adamw && o.moments == adam::MomentFormat::fp32;
  if (!plain && o.placement.optimizer == Tier::device && resolve_device(o.device) == DeviceKind::cuda) {
    throw ConfigError("offload.optimizer",
                      "on a GPU only adamw with fp32 moments is updated by the device: "
                      "set it to host or nvme, or optimizer.rule and optimizer.moments to their defaults");
  }
}

void check_options(const EngineOptions& o, std::span<const UnitSpec> units) {
  const auto uses_nvme = [&](Tier tier) { return tier == Tier::nvme; };
  const bool nvme = uses_nvme(o.placement.weights) || uses_nvme(o.placement.optimizer) ||
                    uses_nvme(o.placement.activations) || o.placement.gradients == Tier::nvme;
  if (nvme && o.nvme.paths.empty())
    throw ConfigError("nvme.paths", "state is placed on NVMe but no directory is given");
  if (units.empty()) throw ConfigError("model", "there are no units");
  check_names(units);
  check_format(o);
  if (o.activation_count > 0 && o.placement.activations != Tier::device && o.activation_slots < 3) {
    throw ConfigError("activation_slots", "at least 3 are needed");
  }
}

}  // namespace

uint64_t Plan::total(Tier tier) const {
  uint64_t bytes = 0;
  for (const PlanItem& item : items) bytes += item.tier == tier ? item.bytes : 0;
  return bytes;
}

Sizing size_engine(const EngineOptions& options, std::span<const UnitSpec> units, int world_size) {
  check_options(options, units);
  const adam::Format format = state_format(options);
  Sizing s;
  s.placement = options.placement;
  for (const UnitSpec& unit : units) {
    s.unit_layouts.push_back(layout_of(unit));
    const int64_t elems = padded_elems(s.unit_layouts.back().elems, world_size) / world_size;
    s.layouts.emplace_back(elems, options.precision, format, unit.shared);
    s.plan.param_count += uint64_t(s.unit_layouts.back().param_count);
  }
  decide_gradients(s, options);
  spread_over_paths(s, options);
  s.plan.placement = s.placement;
  s.plan.device_budget = options.device_memory;
  s.plan.host_budget = options.host_memory;
  return s;
}

Plan make_plan(const EngineOptions& options, std::span<const UnitSpec> units) {
  return size_engine(options, units, 1).plan;
}

}  // namespace headrace
