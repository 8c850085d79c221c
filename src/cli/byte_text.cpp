// SPDX-License-Identifier: Apache-2.0
#include "cli/byte_text.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

namespace headrace::cli {
namespace {

struct Unit {
  std::string_view name;
  uint64_t bytes;
};

constexpr std::array<Unit, 5> kBinaryUnits = {{{"TiB", uint64_t(1) << 40},
                                               {"GiB", uint64_t(1) << 30},
                                               {"MiB", uint64_t(1) << 20},
                                               {"KiB", uint64_t(1) << 10},
                                               {"B", 1}}};
constexpr std::array<Unit, 4> kDecimalUnits = {
    {{"TB", 1'000'000'000'000}, {"GB", 1'000'000'000}, {"MB", 1'000'000}, {"KB", 1'000}}};

std::optional<uint64_t> unit_bytes(std::string_view name) {
  if (name.empty()) return 1;
  for (const Unit& unit : kBinaryUnits) {
    if (unit.name == name) return unit.bytes;
  }
  for (const Unit& unit : kDecimalUnits) {
    if (unit.name == name) return unit.bytes;
  }
  return std::nullopt;
}

}  // namespace

std::optional<uint64_t> parse_bytes(std::string_view text) {
  const size_t digits = text.find_first_not_of("0123456789.");
  const std::string_view number = text.substr(0, digits);
  std::string_view unit = digits == std::string_view::npos ? std::string_view() : text.substr(digits);
  if (unit.size() > 1 && unit.front() == ' ') unit.remove_prefix(1);
  const std::optional<uint64_t> scale = unit_bytes(unit);
  if (number.empty() || !scale) return std::nullopt;

  long double value = 0;  // 64 bits of mantissa on x86-64: every whole number of bytes below 2^63 is exact
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  value *= static_cast<long double>(*scale);
  if (value >= 0x1p63L || value != std::floor(value)) return std::nullopt;
  return uint64_t(value);
}

std::string exact_bytes(uint64_t bytes) {
  for (const Unit& unit : kBinaryUnits) {
    if (unit.bytes > 1 && bytes >= unit.bytes && bytes % unit.bytes == 0) {
      return fmt::format("{}{}", bytes / unit.bytes, unit.name);
    }
  }
  return fmt::format("{}", bytes);
}

std::string readable_bytes(double bytes) {
  for (const Unit& unit : kBinaryUnits) {
    const double count = bytes / double(unit.bytes);
    if (unit.bytes == 1 || count >= 1) {
      return fmt::format("{:.{}f} {}", count, unit.bytes == 1 ? 0 : 2, unit.name);
    }
  }
  return "0 B";
}

std::string readable_seconds(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "--";
  const auto total = int64_t(std::llround(seconds));
  if (total < 60) return fmt::format("{}s", total);
  if (total < 3600) return fmt::format("{}m {:02}s", total / 60, total % 60);
  if (total < 86400) return fmt::format("{}h {:02}m", total / 3600, total % 3600 / 60);
  return fmt::format("{}d {:02}h", total / 86400, total % 86400 / 3600);
}

}  // namespace headrace::cli
