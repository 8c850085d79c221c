// SPDX-License-Identifier: Apache-2.0
// One thread's asynchronous copies to shared memory: they move when they are waited for, not before.
#pragma once

#include <cstddef>
#include <vector>

namespace headrace::emulation {

class AsyncCopies {
 public:
  void clear();
  /// 16 bytes; without `valid` they are zeros. The destination is spoiled until the copy is waited for.
  void add(void* to, const void* from, bool valid);
  void commit();
  /// Until at most `pending` of the newest groups are on their way.
  void wait(size_t pending);

 private:
  struct Copy {
    void* to;
    const void* from;  ///< none: zeros
  };
  std::vector<Copy> copies_;
  std::vector<size_t> group_ends_;  ///< how many of copies_ precede each group's end
};

}  // namespace headrace::emulation
