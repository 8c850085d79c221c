// SPDX-License-Identifier: Apache-2.0
// What can go wrong, as types. A programmer's mistake aborts (HEADRACE_CHECK, also in release builds); the
// world's fault is thrown where the facts are known and names the thing and the remedy. Expected outcomes are
// values, never exceptions. Thread safety: all types are immutable once made.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace headrace {

/// Base of everything headrace throws. what() is one complete line for a person.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file operation failed. `error_code` is the errno, 0 when the transfer was short.
class IoError : public Error {
 public:
  IoError(std::string operation, std::string path, int error_code, uint64_t offset = 0, uint64_t bytes = 0);
  const std::string path;
  const int error_code;
  const uint64_t offset;  ///< bytes from the start of the file
  const uint64_t bytes;   ///< length that was asked for
};

/// A budget does not hold what is wanted. `remedy` names the key to change.
class OutOfMemory : public Error {
 public:
  OutOfMemory(std::string tier, uint64_t wanted, uint64_t available, std::string remedy);
  const std::string tier;    ///< "device", "host" or "nvme"
  const uint64_t wanted;     ///< bytes
  const uint64_t available;  ///< bytes
};

/// The accelerator or its driver reported a fault.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A configuration value is unknown, of the wrong type or impossible. `key` is dotted ("nvme.paths").
class ConfigError : public Error {
 public:
  ConfigError(std::string key, const std::string& message);
  const std::string key;
};

/// Bytes read are not the bytes written.
class CorruptData : public Error {
 public:
  CorruptData(std::string path, uint64_t offset, const std::string& message);
  const std::string path;
  const uint64_t offset;
};

namespace detail {
[[noreturn]] void check_failed(const char* condition, const char* file, int line, const char* message);
}

}  // namespace headrace

/// Aborts with file:line when a rule of the API is broken; stays in release builds.
#define HEADRACE_CHECK(condition, message) \
  ((condition) ? void(0) : ::headrace::detail::check_failed(#condition, __FILE__, __LINE__, message))

#ifdef NDEBUG
#define HEADRACE_DCHECK(condition) void(0)
#else
#define HEADRACE_DCHECK(condition) HEADRACE_CHECK(condition, "")
#endif
