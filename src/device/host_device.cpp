// SPDX-License-Identifier: Apache-2.0
#include "device/host_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace headrace {

HostDevice::HostDevice(size_t memory_bytes)
    : memory_(memory_bytes), arena_("device", "raise device.memory", memory_.bytes()) {}

HostDevice::~HostDevice() {
  // Streams wait for one another, so all of them are idle before the first of them goes.
  for (const HostStream* stream : {&compute_, &h2d_, &d2h_}) stream->drain();
}

std::string HostDevice::description() const {
  const size_t bytes = arena_.capacity();
  constexpr size_t kMiB = size_t(1) << 20;
  const std::string size =
      bytes < kMiB ? fmt::format("{} bytes", bytes)
                   : fmt::format("{:.{}f} MiB", double(bytes) / double(kMiB), bytes % kMiB == 0 ? 0 : 2);
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  return fmt::format("host device, {}, {} thread{}", size, threads, threads == 1 ? "" : "s");
}

LinkStats HostDevice::link_stats(Link link) const {
  if (link == Link::h2d) return h2d_.copy_stats();
  if (link == Link::d2h) return d2h_.copy_stats();
  return {};
}

}  // namespace headrace
