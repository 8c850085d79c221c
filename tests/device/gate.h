// SPDX-License-Identifier: Apache-2.0
// A gate that a stream's task waits behind, so that a test decides when the stream goes on.
#pragma once

#include <condition_variable>
#include <mutex>

#include "headrace/stream.h"

namespace headrace {

class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    entered_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  /// Blocks until somebody stands at the gate.
  void wait_entered() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return entered_; });
  }
  /// A task that stops its stream here.
  Task task() {
    return [this] { pass(); };
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false, entered_ = false;
};

}  // namespace headrace
