// SPDX-License-Identifier: Apache-2.0
// Byte counts and durations as people write and read them: "512MiB", "1.5GiB", "2m 05s". Used by the
// configuration and by everything the program prints. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headrace::cli {

/// "512MiB", "2 GB", "1.5GiB", "4096": units B, KiB, MiB, GiB, TiB (1024) and KB, MB, GB, TB (1000). nullopt
/// when it is not a whole number of bytes below 2^63.
std::optional<uint64_t> parse_bytes(std::string_view text);

/// The shortest exact form that parse_bytes() reads back: "512MiB", "1GiB", "1000".
std::string exact_bytes(uint64_t bytes);

/// Rounded for a person: "1.46 GiB", "512 B".
std::string readable_bytes(double bytes);

/// Rounded to seconds: "42s", "2m 05s", "3h 07m", "5d 02h"; "--" when it is not a number or below zero.
std::string readable_seconds(double seconds);

}  // namespace headrace::cli
