// SPDX-License-Identifier: Apache-2.0
// In which order workers are pinned to CPUs: one for each physical core before a second one of any, and node
// by node, so that neighbouring runs of a span are worked on by neighbours. Linux; used by Workers.
#pragma once

#include <vector>

namespace headrace::adam {

struct CpuPlace {
  int cpu;
  int node, core;  ///< numbers that are equal for CPUs of one node, of one physical core
};

std::vector<int> pinning_order(std::vector<CpuPlace> places);

/// The CPUs that the calling thread may use, in ascending order, where /sys says they are; what it does not
/// say counts as a core of its own.
std::vector<CpuPlace> allowed_cpus();

}  // namespace headrace::adam
