// SPDX-License-Identifier: Apache-2.0
#include "tests/emulation/async_copies.h"

#include <cstring>

namespace headrace::emulation {
namespace {

constexpr size_t kBytes = 16;

}  // namespace

void AsyncCopies::clear() {
  copies_.clear();
  group_ends_.clear();
}

void AsyncCopies::add(void* to, const void* from, bool valid) {
  std::memset(to, 0xff, kBytes);
  copies_.push_back({to, valid ? from : nullptr});
}

void AsyncCopies::commit() {
  group_ends_.push_back(copies_.size());
}

void AsyncCopies::wait(size_t pending) {
  if (group_ends_.size() <= pending) return;
  const size_t groups = group_ends_.size() - pending, done = group_ends_[groups - 1];
  for (size_t i = 0; i < done; ++i) {
    if (copies_[i].from) {
      std::memcpy(copies_[i].to, copies_[i].from, kBytes);
    } else {
      std::memset(copies_[i].to, 0, kBytes);
    }
  }
  copies_.erase(copies_.begin(), copies_.begin() + ptrdiff_t(done));
  group_ends_.erase(group_ends_.begin(), group_ends_.begin() + ptrdiff_t(groups));
  for (size_t& end : group_ends_) end -= done;
}

}  // namespace headrace::emulation
