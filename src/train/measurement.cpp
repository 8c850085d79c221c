// SPDX-License-Identifier: Apache-2.0
#include "train/measurement.h"

#include <fstream>
#include <string>

namespace headrace {

uint64_t peak_rss_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

Stats difference(const Stats& after, const Stats& before) {
  Stats delta = after;  // peaks stay
  for (size_t i = 0; i < kLinkCount; ++i) {
    delta.link[i].bytes -= before.link[i].bytes;
    delta.link[i].busy_ns -= before.link[i].busy_ns;
  }
  for (size_t i = 0; i < kWaitCauseCount; ++i) delta.wait_ns[i] -= before.wait_ns[i];
  delta.adam_ns -= before.adam_ns;
  return delta;
}

}  // namespace headrace
