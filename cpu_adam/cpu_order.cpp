// SPDX-License-Identifier: Apache-2.0
#include "cpu_adam/cpu_order.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <tuple>

namespace headrace::adam {
namespace {

int number_in(const std::string& path, int otherwise) {
  int number = otherwise;
  std::ifstream(path) >> number;
  return number;
}

int node_of(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("node")) return std::atoi(name.c_str() + 4);
  }
  return 0;
}

}  // namespace

std::vector<int> pinning_order(std::vector<CpuPlace> places) {
  std::ranges::sort(places, {}, &CpuPlace::cpu);
  std::map<int, int> seen;  // CPUs of a core so far
  std::vector<std::tuple<int, int, int, int>> keys;
  for (const CpuPlace& place : places)
    keys.emplace_back(seen[place.core]++, place.node, place.core, place.cpu);
  std::ranges::sort(keys);
  std::vector<int> order;
  for (const auto& key : keys) order.push_back(std::get<3>(key));
  return order;
}

std::vector<CpuPlace> allowed_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
  std::vector<CpuPlace> places;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
    // The first number of the list is the core's first CPU: one number for all of them.
    places.push_back({cpu, node_of(folder), number_in(folder + "/topology/thread_siblings_list", cpu)});
  }
  return places;
}

}  // namespace headrace::adam
