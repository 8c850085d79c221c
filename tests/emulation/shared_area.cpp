// SPDX-License-Identifier: Apache-2.0
#include "tests/emulation/shared_area.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "tests/emulation/launch.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, bytes) void(0)
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes) void(0)
#endif

namespace headrace::emulation {
namespace {

constexpr std::byte kWatched{0xc5};

}  // namespace

SharedArea::SharedArea() {
  void* memory = nullptr;
  if (posix_memalign(&memory, 1024, kZone + kMostSharedBytes + kZone) != 0) throw std::bad_alloc();
  memory_ = static_cast<std::byte*>(memory);
  resize(0);
}

SharedArea::~SharedArea() {
  ASAN_UNPOISON_MEMORY_REGION(memory_, kZone + kMostSharedBytes + kZone);
  std::free(memory_);
}

void SharedArea::resize(size_t bytes) {
  bytes_ = bytes;
  ASAN_UNPOISON_MEMORY_REGION(memory_, kZone + kMostSharedBytes + kZone);
  std::memset(memory_, int(kWatched), kZone);
  std::memset(data() + bytes_, int(kWatched), kZone);
  ASAN_POISON_MEMORY_REGION(memory_, kZone);
  ASAN_POISON_MEMORY_REGION(data() + bytes_, kMostSharedBytes + kZone - bytes_);
}

void SharedArea::fill() {
  std::memset(data(), 0xff, bytes_);
}

std::optional<ptrdiff_t> SharedArea::stray_write() const {
#ifndef __SANITIZE_ADDRESS__
  // Almost always nothing: looked at once a block, so it is quick then.
  static const std::vector<std::byte> untouched(kZone, kWatched);
  if (std::memcmp(memory_, untouched.data(), kZone) == 0 &&
      std::memcmp(data() + bytes_, untouched.data(), kZone) == 0)
    return std::nullopt;
  for (ptrdiff_t i = 1; i <= ptrdiff_t(kZone); ++i)
    if (data()[-i] != kWatched) return -i;
  for (size_t i = bytes_; i < bytes_ + kZone; ++i)
    if (data()[i] != kWatched) return ptrdiff_t(i);
#endif
  return std::nullopt;
}

bool SharedArea::holds(const void* address, size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(address);
  return begin >= data() && begin + bytes <= data() + bytes_;
}

}  // namespace headrace::emulation
