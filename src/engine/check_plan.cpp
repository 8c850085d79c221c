// SPDX-License-Identifier: Apache-2.0
// A plan against its budgets and the drives' free space.
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "headrace/engine.h"
#include "headrace/error.h"
#include "headrace/nvme.h"

namespace headrace {
namespace {

std::string mib(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", double(bytes) / double(1u << 20));
}

/// What takes most on the tier beside what follows the budget itself, and the key that changes it.
std::string remedy(const Plan& plan, Tier tier, const std::string& budget_key) {
  const PlanItem* largest = nullptr;
  for (const PlanItem& item : plan.items) {
    if (item.tier == tier && item.key != budget_key && (!largest || item.bytes > largest->bytes))
      largest = &item;
  }
  const uint64_t wanted = plan.total(tier);
  std::string text = fmt::format("raise {} to at least {} ({})", budget_key, wanted, mib(wanted));
  if (largest)
    text += fmt::format(", or change {} ({}: {})", largest->key, largest->what, mib(largest->bytes));
  return text;
}

void check_tier(const Plan& plan, Tier tier, uint64_t budget, const std::string& key) {
  if (plan.total(tier) > budget)
    throw OutOfMemory(tier_name(tier), plan.total(tier), budget, remedy(plan, tier, key));
}

struct statvfs space_of(const std::string& path) {
  struct statvfs space {};
  if (statvfs(path.c_str(), &space) != 0) throw IoError("nvme.paths: examine", path, errno);
  return space;
}

/// What killed runs left on the file system, which is often what fills it; empty when nothing.
std::string leftover_remedy(const std::vector<std::string>& paths, unsigned long file_system) {
  uint64_t bytes = 0;
  std::string folders;
  for (const std::string& path : paths) {
    try {
      if (space_of(path).f_fsid != file_system) continue;
      const std::vector<nvme::Leftover> leftovers = nvme::find_leftovers(path);
      for (const nvme::Leftover& leftover : leftovers) bytes += leftover.bytes;
      if (!leftovers.empty()) folders += " " + path;
    } catch (const IoError&) {
      continue;  // a path that cannot be listed has nothing that could be named
    }
  }
  if (folders.empty()) return {};
  return fmt::format("; `headrace doctor --clean{}` removes {} that killed runs left", folders, mib(bytes));
}

}  // namespace

void check_plan(const Plan& plan, const EngineOptions& options) {
  check_tier(plan, Tier::device, options.device_memory, "device.memory");
  check_tier(plan, Tier::host, options.host_memory, "offload.host_memory");
  std::map<unsigned long, uint64_t> wanted_on;  // paths of one file system share its space
  for (size_t i = 0; i < plan.nvme_path_bytes.size(); ++i) {
    if (plan.nvme_path_bytes[i] == 0) continue;
    const std::string& path = options.nvme.paths[i];
    const struct statvfs space = space_of(path);
    const uint64_t available = uint64_t(space.f_bavail) * space.f_frsize;
    const uint64_t wanted = wanted_on[space.f_fsid] += plan.nvme_path_bytes[i];
    if (wanted > available) {
      throw OutOfMemory("nvme", wanted, available,
                        fmt::format("free space on {} or name another of nvme.paths{}", path,
                                    leftover_remedy(options.nvme.paths, space.f_fsid)));
    }
  }
}

}  // namespace headrace
