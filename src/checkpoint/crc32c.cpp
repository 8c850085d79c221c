// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/crc32c.h"

#include <fmt/format.h>
#include <isa-l/crc.h>

#include <algorithm>

namespace headrace::saved {

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  constexpr size_t kMaxCall = size_t{1} << 30;  // ISA-L takes an int
  uint32_t state = ~before;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kMaxCall));
    // ISA-L's signature lacks const; it only reads.
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(part.data()));
    state = crc32_iscsi(data, int(part.size()), state);
    bytes = bytes.subspan(part.size());
  }
  return ~state;
}

uint32_t crc32c(std::string_view text) {
  return crc32c(std::as_bytes(std::span(text)));
}

std::string crc_text(uint32_t crc) {
  return fmt::format("{:08x}", crc);
}

}  // namespace headrace::saved
