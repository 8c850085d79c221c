// SPDX-License-Identifier: Apache-2.0
#include "nvme/posix_engine.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace headrace::nvme {
namespace {

int transfer(const Operation& operation) {
  const auto offset = off_t(operation.offset);
  const ssize_t moved = operation.direction == Direction::read
                            ? ::pread(operation.fd, operation.memory, operation.bytes, offset)
                            : ::pwrite(operation.fd, operation.memory, operation.bytes, offset);
  return moved < 0 ? -errno : int(moved);
}

}  // namespace

PosixEngine::PosixEngine(OperationHandler& handler, Direction direction, unsigned depth)
    : handler_(handler), direction_(direction) {
  const unsigned count = std::clamp(depth, 1u, kMaxThreads);
  threads_.reserve(count);
  try {
    for (unsigned i = 0; i < count; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {
    end_threads();  // those that started wait for work, and their jthreads for them
    throw;
  }
}

PosixEngine::~PosixEngine() {
  end_threads();
}

void PosixEngine::end_threads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  more_.notify_all();
  threads_.clear();
}

void PosixEngine::submit(Operation& operation) {
  operation.next = nullptr;
  {
    const std::lock_guard lock(mutex_);
    (first_ ? last_->next : first_) = &operation;
    last_ = &operation;
  }
  more_.notify_one();
}

void PosixEngine::work() {
  enter_io_thread(direction_ == Direction::read ? "nvme-read" : "nvme-write");
  while (true) {
    Operation* operation = nullptr;
    {
      std::unique_lock lock(mutex_);
      more_.wait(lock, [this] { return first_ || stop_; });
      if (!first_) return;
      operation = first_;
      first_ = operation->next;
    }
    handler_.before_issue(*operation);
    handler_.completed(*operation, transfer(*operation));
  }
}

}  // namespace headrace::nvme
