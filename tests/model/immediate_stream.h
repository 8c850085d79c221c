// SPDX-License-Identifier: Apache-2.0
// A host stream that runs every task in the calling thread at once, so that a test reads results right away.
#pragma once

#include <cstring>

#include "headrace/stream.h"

namespace headrace::test {

class ImmediateStream final : public Stream {
 public:
  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::host; }
  [[nodiscard]] void* native_handle() const override { return nullptr; }
  void enqueue(Task task) override { task(); }
  void copy(void* to, const void* from, size_t bytes) override { std::memmove(to, from, bytes); }
  void zero(void* to, size_t bytes) override { std::memset(to, 0, bytes); }
  void wait(const Event&) override {}
  void record(Event&) override {}
  void synchronize() override {}
};

}  // namespace headrace::test
