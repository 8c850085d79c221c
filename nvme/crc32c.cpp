// SPDX-License-Identifier: Apache-2.0
#include "nvme/crc32c.h"

#include <isa-l/crc.h>

#include "headrace/error.h"

namespace headrace::nvme {

uint32_t crc32c(std::span<const std::byte> data) {
  HEADRACE_CHECK(data.size() <= (1u << 30), "crc32c takes at most 1 GiB at a time");
  // ISA-L takes non-const memory it does not write, and leaves both inversions of the standard to the caller.
  auto* bytes = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(data.data()));
  return ~crc32_iscsi(bytes, int(data.size()), 0xffffffffu);
}

}  // namespace headrace::nvme
