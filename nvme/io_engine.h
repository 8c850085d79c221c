// SPDX-License-Identifier: Apache-2.0
// The I/O boundary: one engine moves the bytes of one direction of a Store between memory and files, and
// reports each operation's result as the kernel gave it. An engine does not retry, cut, align or check
// anything (lane.h does). Implementations: io_uring_engine.h, posix_engine.h, and a faulty one in the tests.
//
// Hand-overs: the caller owns an Operation; it is lent from submit() until completed() is called for it,
// which happens on an engine's thread and never inside submit(). Thread safety: submit from any thread, also
// from completed(); everything else before the first submit or while nothing is in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "headrace/nvme.h"

namespace headrace::nvme {

enum class Direction : uint8_t { read, write };
constexpr const char* direction_name(Direction direction) {
  return direction == Direction::read ? "read" : "write";
}

struct Operation {
  Direction direction = Direction::read;
  int fd = -1;
  unsigned file_slot = 0;  ///< what add_file was told about this fd
  uint64_t offset = 0;     ///< bytes from the start of the file
  std::byte* memory = nullptr;
  size_t bytes = 0;
  Operation* next = nullptr;  ///< a link for whoever holds the operation
};

class OperationHandler {
 public:
  virtual ~OperationHandler() = default;
  /// On the engine's thread, just before the kernel gets the operation: the place for work on the bytes.
  virtual void before_issue(Operation& operation) noexcept = 0;
  /// `result` is the number of bytes moved, or -errno. The operation is the caller's again.
  virtual void completed(Operation& operation, int result) noexcept = 0;
};

class IoEngine {
 public:
  /// Everything submitted has completed by then.
  virtual ~IoEngine() = default;
  [[nodiscard]] virtual EngineKind kind() const = 0;
  /// Tells that operations with `slot` use `fd`; -1: no longer. An engine may register the file with the
  /// kernel.
  virtual void add_file(unsigned slot, int fd) = 0;
  /// Memory that most operations use. Returns what was refused and why; empty if nothing.
  virtual std::string register_memory(std::span<std::byte> arena) = 0;
  /// Returns at once; at most the depth the engine was made for may be in flight.
  virtual void submit(Operation& operation) = 0;
  /// fdatasync of a file: 0 or -errno. Blocks.
  virtual int sync(int fd) = 0;
};

/// Makes the engine of one direction; the handler outlives it. Throws IoError when the kernel refuses.
using EngineFactory =
    std::function<std::unique_ptr<IoEngine>(OperationHandler& handler, Direction direction, unsigned depth)>;

/// 0 or -errno.
int sync_file(int fd);
/// Names the calling I/O thread and keeps the process's signals away from it.
void enter_io_thread(const char* name);

}  // namespace headrace::nvme
