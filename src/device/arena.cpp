// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <utility>

#include "device/device.h"
#include "headrace/error.h"

namespace headrace {

Arena::Arena(std::string tier, std::string remedy, std::span<std::byte> memory)
    : tier_(std::move(tier)), remedy_(std::move(remedy)), memory_(memory) {}

std::byte* Arena::take(size_t bytes, size_t alignment, const std::string& what) {
  HEADRACE_CHECK(std::has_single_bit(alignment), "an alignment is a power of two");
  // Aligned is the address, not the offset: the region itself may begin anywhere.
  const auto address = reinterpret_cast<uintptr_t>(memory_.data()) + used_;
  const size_t padding = size_t(-address) & (alignment - 1);
  const size_t left = memory_.size() - used_;
  const size_t available = left > padding ? left - padding : 0;
  if (padding > left || bytes > available)
    throw OutOfMemory(tier_, bytes, available, fmt::format("{} does not fit: {}", what, remedy_));
  std::byte* const taken = memory_.data() + used_ + padding;
  used_ += padding + bytes;
  return taken;
}

}  // namespace headrace
