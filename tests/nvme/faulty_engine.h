// SPDX-License-Identifier: Apache-2.0
// An engine that wraps a real one and misbehaves as a plan says: wrong results, fewer bytes, changed bytes,
// late and reordered completions, failing syncs. The bytes otherwise really move.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "nvme/io_engine.h"

namespace headrace::nvme::test {

struct FaultPlan {
  std::atomic<bool> armed{false};
  std::atomic<unsigned> seen{0};  ///< operations completed while armed
  /// The result to report for the n-th (from 1) operation; may change its memory.
  std::function<int(Operation& operation, int result, unsigned n)> on_result;
  /// How many bytes to really move of those asked for.
  std::function<size_t(const Operation& operation)> on_bytes;
  bool reorder = false;  ///< from the start: completions are kept back and come in a random order
  std::atomic<int> sync_result{0};
};

class FaultyEngine : public IoEngine, private OperationHandler {
 public:
  FaultyEngine(OperationHandler& handler, Direction direction, unsigned depth, FaultPlan& plan,
               const EngineFactory& real)
      : handler_(handler), plan_(plan), real_(real(*this, direction, depth)) {
    if (plan.reorder) releaser_ = std::jthread([this](std::stop_token stop) { release_late(stop); });
  }

  [[nodiscard]] EngineKind kind() const override { return real_->kind(); }
  void add_file(unsigned slot, int fd) override { real_->add_file(slot, fd); }
  std::string register_memory(std::span<std::byte> arena) override { return real_->register_memory(arena); }
  void submit(Operation& operation) override {
    if (plan_.armed && plan_.on_bytes) operation.bytes = plan_.on_bytes(operation);
    real_->submit(operation);
  }
  int sync(int fd) override {
    const int planned = plan_.sync_result.exchange(0);  // as the kernel: once
    return planned != 0 ? planned : real_->sync(fd);
  }

 private:
  void before_issue(Operation& operation) noexcept override { handler_.before_issue(operation); }
  void completed(Operation& operation, int result) noexcept override {
    if (plan_.armed && plan_.on_result) result = plan_.on_result(operation, result, ++plan_.seen);
    if (!plan_.reorder) return handler_.completed(operation, result);
    const std::lock_guard lock(mutex_);
    held_.emplace_back(&operation, result);
    more_.notify_one();
  }
  void release_late(const std::stop_token& stop) {
    std::mt19937 random(7);
    while (true) {
      std::vector<std::pair<Operation*, int>> batch;
      {
        std::unique_lock lock(mutex_);
        if (!more_.wait(lock, stop, [this] { return !held_.empty(); })) return;
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(300));  // let some more come in
        lock.lock();
        batch.swap(held_);
      }
      std::shuffle(batch.begin(), batch.end(), random);
      for (const auto& [operation, result] : batch) handler_.completed(*operation, result);
    }
  }

  OperationHandler& handler_;
  FaultPlan& plan_;
  std::mutex mutex_;
  std::condition_variable_any more_;
  std::vector<std::pair<Operation*, int>> held_;
  std::unique_ptr<IoEngine> real_;
  std::jthread releaser_;
};

/// A factory of faulty engines around those of `real`; the plan outlives the store.
inline EngineFactory faulty(FaultPlan& plan, EngineFactory real) {
  return [&plan, real = std::move(real)](OperationHandler& handler, Direction direction, unsigned depth) {
    return std::make_unique<FaultyEngine>(handler, direction, depth, plan, real);
  };
}

}  // namespace headrace::nvme::test
