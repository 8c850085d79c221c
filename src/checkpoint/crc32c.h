// SPDX-License-Identifier: Apache-2.0
// CRC32C (Castagnoli, RFC 3720) by ISA-L: the checksum of every byte in a saved run. crc32c("123456789") is
// 0xe3069283. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace headrace::saved {

/// `before` is the checksum of the bytes that precede `bytes`, so that a stream may come in pieces.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);
uint32_t crc32c(std::string_view text);
/// Eight lower-case hexadecimal digits: how checksums stand in manifests.
std::string crc_text(uint32_t crc);

}  // namespace headrace::saved
