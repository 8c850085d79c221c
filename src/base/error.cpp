// SPDX-License-Identifier: Apache-2.0
#include "headrace/error.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace headrace {
namespace {

std::string io_message(const std::string& operation, const std::string& path, int error_code, uint64_t offset,
                       uint64_t bytes) {
  const std::string reason = error_code ? fmt::format("{} (errno {})", std::strerror(error_code), error_code)
                                        : std::string("fewer bytes than asked for");
  if (bytes == 0) return fmt::format("{} {}: {}", operation, path, reason);
  return fmt::format("{} {}: {} bytes at offset {}: {}", operation, path, bytes, offset, reason);
}

}  // namespace

IoError::IoError(std::string operation, std::string path_in, int code, uint64_t offset_in, uint64_t bytes_in)
    : Error(io_message(operation, path_in, code, offset_in, bytes_in)),
      path(std::move(path_in)),
      error_code(code),
      offset(offset_in),
      bytes(bytes_in) {}

OutOfMemory::OutOfMemory(std::string tier_in, uint64_t wanted_in, uint64_t available_in, std::string remedy)
    : Error(fmt::format("out of {} memory: {} bytes wanted, {} available; {}", tier_in, wanted_in,
                        available_in, remedy)),
      tier(std::move(tier_in)),
      wanted(wanted_in),
      available(available_in) {}

ConfigError::ConfigError(std::string key_in, const std::string& message)
    : Error(key_in.empty() ? message : fmt::format("{}: {}", key_in, message)), key(std::move(key_in)) {}

CorruptData::CorruptData(std::string path_in, uint64_t offset_in, const std::string& message)
    : Error(fmt::format("{} at offset {}: {}", path_in, offset_in, message)),
      path(std::move(path_in)),
      offset(offset_in) {}

namespace detail {

void check_failed(const char* condition, const char* file, int line, const char* message) {
  std::fprintf(stderr, "headrace: %s:%d: %s does not hold%s%s\n", file, line, condition, *message ? ": " : "",
               message);
  std::abort();
}

}  // namespace detail
}  // namespace headrace
