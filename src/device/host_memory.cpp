// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/device.h"
#include "headrace/error.h"

namespace headrace {
namespace {

constexpr size_t kHugePage = size_t(2) << 20;
constexpr const char* kRemedy = "lower offload.host_memory (or device.memory when the device is the host)";

constexpr size_t round_up(size_t bytes, size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

/// MemAvailable, and a container's limit when there is one. Without this a budget beyond the machine would
/// be granted by overcommit and end in the out-of-memory killer while it is touched.
size_t available_bytes() {
  size_t available = std::numeric_limits<size_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key, rest; meminfo >> key; std::getline(meminfo, rest))
    if (size_t kib = 0; key == "MemAvailable:" && meminfo >> kib) available = kib * 1024;
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  if (size_t bytes = 0; limit >> bytes) available = std::min(available, bytes);  // "max" does not parse
  return available;
}

void touch(std::byte* begin, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(begin, bytes, MADV_POPULATE_WRITE) == 0) return;
#endif
  const auto page = size_t(sysconf(_SC_PAGESIZE));
  for (size_t at = 0; at < bytes; at += page) *const_cast<volatile std::byte*>(begin + at) = std::byte{0};
}

/// Touching is zeroing, done by the kernel on the core that asks: large regions are cut over some threads.
void touch_in_parallel(std::byte* begin, size_t bytes) {
  constexpr size_t kPerThread = size_t(64) << 20;
  constexpr size_t kMaxThreads = 8;
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const size_t threads = std::clamp<size_t>(bytes / kPerThread, 1, std::min(cores, kMaxThreads));
  const size_t part = round_up((bytes + threads - 1) / threads, kHugePage);
  std::vector<std::jthread> others;
  for (size_t at = part; at < bytes; at += part)
    others.emplace_back([begin, bytes, at, part] { touch(begin + at, std::min(part, bytes - at)); });
  touch(begin, std::min(part, bytes));
}

}  // namespace

HostMemory::HostMemory(size_t bytes) {
  if (bytes == 0) return;
  const size_t available = available_bytes();
  if (bytes > available) throw OutOfMemory("host", bytes, available, kRemedy);
  // One huge page more than needed, so that an aligned range surely lies inside; the rest goes back.
  const size_t mapped = round_up(bytes, kHugePage);
  void* const region =
      mmap(nullptr, mapped + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (region == MAP_FAILED) throw OutOfMemory("host", bytes, available, kRemedy);
  auto* const begin = static_cast<std::byte*>(region);
  const size_t head = size_t(-reinterpret_cast<uintptr_t>(begin)) & (kHugePage - 1);
  if (head > 0) munmap(begin, head);
  if (head < kHugePage) munmap(begin + head + mapped, kHugePage - head);
  data_ = begin + head;
  bytes_ = bytes;
  madvise(data_, mapped, MADV_HUGEPAGE);  // a kernel without huge pages refuses, which costs speed only
  touch_in_parallel(data_, round_up(bytes, size_t(sysconf(_SC_PAGESIZE))));
}

HostMemory::~HostMemory() {
  if (data_) munmap(data_, round_up(bytes_, kHugePage));
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

}  // namespace headrace
