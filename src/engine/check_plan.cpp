// SPDX-License-Identifier: Apache-2.0
// A plan against its budgets and the drives' free space.
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "headrace/engine.h"
#include "headrace/error.h"

namespace headrace {
namespace {

std::string mib(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", double(bytes) / double(1u << 20));
}

/// What takes most on the tier, and what to change.
std::string remedy(const Plan& plan, Tier tier, const std::string& budget_key) {
  const PlanItem* largest = nullptr;
  for (const PlanItem& item : plan.items) {
    if (item.tier == tier && (!largest || item.bytes > largest->bytes)) largest = &item;
  }
  const uint64_t wanted = plan.total(tier);
  std::string text = fmt::format("raise {} to at least {} ({})", budget_key, wanted, mib(wanted));
  if (largest)
    text += fmt::format(", or change {}: {} take {}", largest->key, largest->what, mib(largest->bytes));
  return text;
}

void check_tier(const Plan& plan, Tier tier, uint64_t budget, const std::string& key) {
  if (plan.total(tier) > budget)
    throw OutOfMemory(tier_name(tier), plan.total(tier), budget, remedy(plan, tier, key));
}

}  // namespace

void check_plan(const Plan& plan, const EngineOptions& options) {
  check_tier(plan, Tier::device, options.device_memory, "device.memory");
  check_tier(plan, Tier::host, options.host_memory, "offload.host_memory");
  std::map<unsigned long, uint64_t> wanted_on;  // paths of one file system share its space
  for (size_t i = 0; i < plan.nvme_path_bytes.size(); ++i) {
    if (plan.nvme_path_bytes[i] == 0) continue;
    struct statvfs file_system {};
    const std::string& path = options.nvme.paths[i];
    if (statvfs(path.c_str(), &file_system) != 0) throw IoError("nvme.paths: examine", path, errno);
    const uint64_t available = uint64_t(file_system.f_bavail) * file_system.f_frsize;
    const uint64_t wanted = wanted_on[file_system.f_fsid] += plan.nvme_path_bytes[i];
    if (wanted > available) {
      throw OutOfMemory("nvme", wanted, available,
                        fmt::format("free space on {} or name another of nvme.paths", path));
    }
  }
}

}  // namespace headrace
