// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/byte_text.h"
#include "cli/report.h"

namespace headrace::cli {
namespace {

struct TierView {
  Tier tier;
  std::optional<uint64_t> budget;  ///< drives have none but their free space
  const char* budget_key;
};

std::array<TierView, 3> tiers_of(const Plan& plan) {
  return {{{Tier::device, plan.device_budget, "device.memory"},
           {Tier::host, plan.host_budget, "offload.host_memory"},
           {Tier::nvme, std::nullopt, "nvme.paths"}}};
}

uint64_t total_bytes(const Plan& plan, Tier tier) {
  uint64_t total = 0;
  for (const PlanItem& item : plan.items) total += item.tier == tier ? item.bytes : 0;
  return total;
}

std::string mib(uint64_t bytes) {
  return fmt::format("{:.2f} MiB", double(bytes) / double(1 << 20));
}

std::string item_row(const char* tier, std::string_view what, uint64_t bytes, std::string_view key) {
  return fmt::format("{:<8}{:<44}{:>16}  {}\n", tier, what, mib(bytes), key);
}

}  // namespace

std::string plan_table(const Plan& plan) {
  std::string text = fmt::format("{} parameters; weights on {}, optimizer on {}, activations on {}",
                                 plan.param_count, tier_name(plan.placement.weights),
                                 tier_name(plan.placement.optimizer), tier_name(plan.placement.activations));
  if (plan.placement.gradients)
    text += fmt::format(", gradients on {}", tier_name(*plan.placement.gradients));
  text += fmt::format("\n\n{:<8}{:<44}{:>16}  {}\n", "tier", "item", "size", "key that changes it");
  for (const TierView& view : tiers_of(plan)) {
    for (const PlanItem& item : plan.items) {
      if (item.tier == view.tier) text += item_row(tier_name(view.tier), item.what, item.bytes, item.key);
    }
    const uint64_t total = total_bytes(plan, view.tier);
    std::string verdict(view.budget_key);
    if (view.budget) {
      verdict += fmt::format(" = {}: {}", readable_bytes(double(*view.budget)),
                             total <= *view.budget ? "fits" : mib(total - *view.budget) + " too much");
    }
    text += item_row(tier_name(view.tier), "total", total, verdict) + "\n";
  }
  return text;
}

std::string plan_json(const Plan& plan) {
  using Json = nlohmann::ordered_json;
  Json tiers;
  bool fits = true;
  for (const TierView& view : tiers_of(plan)) {
    Json items = Json::array();
    for (const PlanItem& item : plan.items) {
      if (item.tier != view.tier) continue;
      items.push_back({{"what", item.what}, {"bytes", item.bytes}, {"key", item.key}});
    }
    const uint64_t total = total_bytes(plan, view.tier);
    fits = fits && (!view.budget || total <= *view.budget);
    Json& tier = tiers[tier_name(view.tier)];
    tier["total_bytes"] = total;
    tier["budget_bytes"] = view.budget ? Json(*view.budget) : Json(nullptr);
    tier["items"] = items;
  }
  Json placement = {{"weights", tier_name(plan.placement.weights)},
                    {"optimizer", tier_name(plan.placement.optimizer)},
                    {"activations", tier_name(plan.placement.activations)}};
  if (plan.placement.gradients) placement["gradients"] = tier_name(*plan.placement.gradients);
  return Json{{"param_count", plan.param_count}, {"placement", placement}, {"fits", fits}, {"tiers", tiers}}
      .dump(2);
}

}  // namespace headrace::cli
