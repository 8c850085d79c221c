// SPDX-License-Identifier: Apache-2.0
// A stack that can be left and come back to: one per suspended thread of a kernel. Boost.Context switches,
// sanitizers are told. Used by the executor only; fibers never end, they are left where they stand.
#pragma once

#include <cstddef>

namespace headrace::emulation {

class Fiber {
 public:
  /// Stands for the stack of whoever calls switch_fiber() first.
  Fiber() = default;
  /// `entry` never returns; it is called with the fiber when it is first switched to. The stack ends at a
  /// page that cannot be touched.
  explicit Fiber(void (*entry)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Forgets where it stands: the next switch calls `entry` again.
  void restart();

  /// Leaves `from`, which is running, for `to`. Returns when someone switches back to `from`.
  friend void switch_fiber(Fiber& from, Fiber& to);
  /// Before the first switch away from the calling thread's own stack.
  void adopt_calling_thread();

 private:
  struct Arrival;
  void land(Arrival arrival);
  void map_stack();

  void* context_ = nullptr;
  void (*entry_)() = nullptr;
  std::byte* mapping_ = nullptr;
  const void* stack_ = nullptr;  ///< lowest address
  size_t stack_bytes_ = 0;
  void* sanitizer_state_ = nullptr;
};

}  // namespace headrace::emulation
