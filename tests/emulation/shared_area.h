// SPDX-License-Identifier: Apache-2.0
// The dynamic shared memory of the running block, and the watch around it: under AddressSanitizer the bytes
// before and after it are poisoned, otherwise they hold a pattern that is looked at when a block ends. Used
// by the executor.
#pragma once

#include <cstddef>
#include <optional>

namespace headrace::emulation {

class SharedArea {
 public:
  SharedArea();
  ~SharedArea();
  SharedArea(const SharedArea&) = delete;
  SharedArea& operator=(const SharedArea&) = delete;

  /// For all blocks of a launch.
  void resize(size_t bytes);
  /// NaN patterns, whatever the format: a read before the first write shows.
  void fill();
  /// Where a byte outside was written, counted from the area's begin.
  [[nodiscard]] std::optional<ptrdiff_t> stray_write() const;

  [[nodiscard]] std::byte* data() const { return memory_ + kZone; }
  [[nodiscard]] size_t bytes() const { return bytes_; }
  [[nodiscard]] bool holds(const void* address, size_t bytes) const;

 private:
  static constexpr size_t kZone = 1024;  ///< watched on either side
  std::byte* memory_;
  size_t bytes_ = 0;
};

}  // namespace headrace::emulation
