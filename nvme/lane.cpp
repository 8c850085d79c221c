// SPDX-License-Identifier: Apache-2.0
#include "nvme/lane.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "headrace/error.h"

namespace headrace::nvme {
namespace {

constexpr unsigned kBounces = 4;      // bounced transfers are rare and slow anyway
constexpr unsigned kMaxStalls = 100;  // EAGAIN or EINTR this often in a row is an error, not a hiccup

// A request's value: turn, record, direction. The direction is the store's to read (request_direction).
constexpr unsigned kIndexShift = 1;
constexpr unsigned kTurnShift = 11;
static_assert((1u << (kTurnShift - kIndexShift)) >= Lane::kMaxTransfers);

size_t record_index(const Request& request) {
  return size_t(request.value >> kIndexShift) & (Lane::kMaxTransfers - 1);
}

}  // namespace

Lane::Lane(Direction direction, const LaneOptions& options, const EngineFactory& make_engine)
    : direction_(direction),
      options_(options),
      zeros_(direction == Direction::write ? options.chunk_bytes : 0),
      bounce_memory_(kBounces * options.chunk_bytes),
      transfers_(kMaxTransfers),
      chunks_(2 * size_t(options.queue_depth)) {  // while one half is checked the other half moves
  for (Transfer& transfer : transfers_) transfer.next = std::exchange(free_transfers_, &transfer);
  for (Chunk& chunk : chunks_) chunk.next = std::exchange(free_chunks_, &chunk);
  for (unsigned i = 0; i < kBounces; ++i) {
    free_bounces_.push_back(bounce_memory_.data() + i * options.chunk_bytes);
  }
  engine_ = make_engine(*this, direction, options.queue_depth);
}

Lane::~Lane() {
  std::unique_lock lock(mutex_);
  while (first_pending_) {
    Transfer& transfer = *first_pending_;
    give_up_rest(transfer);
    finish_if_complete(transfer);
  }
  progress_.wait(lock, [this] { return running_ == 0; });
}

Request Lane::start(Extent& extent, uint64_t offset, std::byte* memory, uint64_t bytes) {
  return bytes == 0 ? Request{} : enqueue_and_submit(extent, offset, memory, bytes);
}

void Lane::fill_with_zeros(Extent& extent) {
  if (extent.bytes() > 0) wait(enqueue_and_submit(extent, 0, nullptr, extent.bytes()));
}

Request Lane::enqueue_and_submit(Extent& extent, uint64_t offset, std::byte* memory, uint64_t bytes) {
  Request request;
  Operation* batch = nullptr;
  {
    std::unique_lock lock(mutex_);
    Transfer& transfer = take_transfer(lock);
    transfer.extent = &extent;
    transfer.offset = offset;
    transfer.memory = memory;
    transfer.bytes = bytes;
    request.value = enqueue(transfer);
    batch = fill();
  }
  submit_all(batch);
  return request;
}

void Lane::wait(Request request) {
  Transfer& transfer = transfers_[record_index(request)];
  const uint64_t turn = request.value >> kTurnShift;
  std::unique_lock lock(mutex_);
  HEADRACE_CHECK(turn <= transfer.turn, "not a request of this store");
  progress_.wait(lock, [&] { return transfer.turn != turn || transfer.failed; });
  if (transfer.turn != turn) return;
  const std::exception_ptr error = std::move(transfer.error);
  release(transfer);
  progress_.notify_all();
  lock.unlock();
  std::rethrow_exception(error);
}

bool Lane::done(const Request& request) const {
  const Transfer& transfer = transfers_[record_index(request)];
  const std::lock_guard lock(mutex_);
  return transfer.turn != request.value >> kTurnShift || transfer.failed;
}

LinkStats Lane::stats() const {
  const std::lock_guard lock(mutex_);
  LinkStats stats = stats_;
  if (counted_ > 0) stats.busy_ns += now_ns() - busy_since_ns_;
  return stats;
}

uint64_t Lane::now_ns() const {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

Lane::Transfer& Lane::take_transfer(std::unique_lock<std::mutex>& lock) {
  while (!free_transfers_) {
    if (running_ == 0) {
      // Every record holds an error that nobody has asked for: waiting would be for ever.
      const std::exception_ptr error = transfers_.front().error;
      lock.unlock();
      std::rethrow_exception(error);
    }
    progress_.wait(lock);
  }
  Transfer& transfer = *std::exchange(free_transfers_, free_transfers_->next);
  transfer.next = nullptr;
  return transfer;
}

uint64_t Lane::enqueue(Transfer& transfer) {
  ++running_;
  (first_pending_ ? last_pending_->next : first_pending_) = &transfer;
  last_pending_ = &transfer;
  const auto index = uint64_t(&transfer - transfers_.data());
  return transfer.turn << kTurnShift | index << kIndexShift | uint64_t(direction_);
}

Operation* Lane::fill() {
  Operation* first = nullptr;
  Operation** end = &first;
  while (first_pending_ && free_chunks_ && in_engine_ < options_.queue_depth) {
    Transfer& transfer = *first_pending_;
    auto& chunk = static_cast<Chunk&>(*free_chunks_);
    if (!cut(transfer, chunk)) break;
    free_chunks_ = chunk.next;
    if (transfer.issued == transfer.bytes) first_pending_ = std::exchange(transfer.next, nullptr);
    chunk.next = nullptr;
    *end = &chunk;
    end = &chunk.next;
  }
  return first;
}

/// Makes the next chunk of the transfer; false when it must wait for a bounce buffer.
bool Lane::cut(Transfer& transfer, Chunk& chunk) {
  const uint64_t begin = transfer.offset + transfer.issued;
  std::byte* user = transfer.memory ? transfer.memory + transfer.issued : nullptr;
  const bool aligned = reinterpret_cast<uintptr_t>(user) % options_.memory_alignment == 0;
  std::byte* bounce = nullptr;
  if (!aligned && begin < transfer.extent->direct_bytes()) {
    if (free_bounces_.empty()) return false;
    bounce = free_bounces_.back();
    free_bounces_.pop_back();
  }
  chunk.transfer = &transfer;
  chunk.direction = direction_;
  chunk.begin = begin;
  chunk.length = size_t(std::min<uint64_t>(options_.chunk_bytes, transfer.bytes - transfer.issued));
  chunk.moved = 0;
  chunk.stalls = 0;
  chunk.user = user;
  chunk.bounce = bounce;
  chunk.begun = false;
  aim(chunk);
  transfer.issued += chunk.length;
  ++transfer.chunks;
  ++in_engine_;
  if (user && counted_++ == 0) busy_since_ns_ = now_ns();
  return true;
}

void Lane::submit_all(Operation* first) {
  while (first) {
    Operation* next = first->next;
    engine_->submit(*first);
    first = next;
  }
}

/// Points the operation at what is still to move: first the whole blocks, then the odd tail.
void Lane::aim(Chunk& chunk) {
  const Extent& extent = *chunk.transfer->extent;
  const uint64_t at = chunk.begin + chunk.moved;
  const uint64_t direct_left = at < extent.direct_bytes() ? extent.direct_bytes() - at : 0;
  const size_t left = chunk.length - chunk.moved;
  const bool direct = direct_left > 0;
  std::byte* memory = chunk.bounce ? chunk.bounce : chunk.user ? chunk.user : zeros_.data();
  chunk.fd = extent.fd(direct);
  chunk.file_slot = extent.slot(direct);
  chunk.offset = at;
  chunk.memory = memory + chunk.moved;
  chunk.bytes = direct ? size_t(std::min<uint64_t>(left, direct_left)) : left;
}

void Lane::before_issue(Operation& operation) noexcept {
  auto& chunk = static_cast<Chunk&>(operation);
  if (std::exchange(chunk.begun, true) || direction_ == Direction::read || !chunk.user) return;
  chunk.transfer->extent->begin_write(chunk.begin, {chunk.user, chunk.length}, options_.checksum);
  if (chunk.bounce) std::memcpy(chunk.bounce, chunk.user, chunk.length);
}

void Lane::completed(Operation& operation, int result) noexcept {
  auto& chunk = static_cast<Chunk&>(operation);
  Transfer& transfer = *chunk.transfer;
  int error_code = 0;
  const Step step = advance(chunk, result, error_code);
  if (step == Step::again) return engine_->submit(chunk);

  const bool moved = step == Step::done;
  std::exception_ptr error = moved ? nullptr : io_error(chunk, error_code);
  Operation* batch = nullptr;
  {
    const std::lock_guard lock(mutex_);
    leave_engine(chunk, moved);
    if (error) fail(transfer, std::move(error));
    batch = fill();
  }
  submit_all(batch);  // before the check: the drive works meanwhile
  error = moved ? check(chunk) : nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (error) fail(transfer, std::move(error));
    if (chunk.bounce) free_bounces_.push_back(chunk.bounce);
    chunk.next = std::exchange(free_chunks_, &chunk);
    --transfer.chunks;
    finish_if_complete(transfer);
    batch = fill();
  }
  submit_all(batch);
}

Lane::Step Lane::advance(Chunk& chunk, int result, int& error_code) {
  if (result == -EAGAIN || result == -EINTR) {
    error_code = -result;
    if (++chunk.stalls > kMaxStalls) return Step::failed;
    std::this_thread::yield();
    return Step::again;
  }
  if (result <= 0) {  // 0: the file ends here
    error_code = -result;
    return Step::failed;
  }
  auto moved = size_t(result);
  const Extent& extent = *chunk.transfer->extent;
  // O_DIRECT must go on at a block: the part of one that has moved moves again.
  if (moved < chunk.bytes && chunk.offset < extent.direct_bytes()) moved -= moved % extent.block_bytes();
  if (moved == 0) {
    error_code = 0;
    return Step::failed;
  }
  chunk.stalls = 0;
  chunk.moved += std::min(moved, chunk.bytes);
  if (chunk.moved == chunk.length) return Step::done;
  aim(chunk);
  return Step::again;
}

std::exception_ptr Lane::check(Chunk& chunk) {
  if (!chunk.user) return nullptr;
  Extent& extent = *chunk.transfer->extent;
  if (direction_ == Direction::write) {
    extent.finish_write(chunk.begin, chunk.length);
    return nullptr;
  }
  if (chunk.bounce) std::memcpy(chunk.user, chunk.bounce, chunk.length);
  try {
    extent.verify(chunk.begin, {chunk.user, chunk.length}, options_.checksum);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

std::exception_ptr Lane::io_error(const Chunk& chunk, int error_code) const {
  return std::make_exception_ptr(IoError(direction_name(direction_), chunk.transfer->extent->path(),
                                         error_code, chunk.offset, chunk.bytes));
}

void Lane::leave_engine(const Chunk& chunk, bool moved) {
  --in_engine_;
  if (!chunk.user) return;
  if (moved) stats_.bytes += chunk.length;
  if (--counted_ == 0) stats_.busy_ns += now_ns() - busy_since_ns_;
}

void Lane::fail(Transfer& transfer, std::exception_ptr error) {
  if (!transfer.error) transfer.error = std::move(error);
  give_up_rest(transfer);
}

void Lane::give_up_rest(Transfer& transfer) {
  if (transfer.issued == transfer.bytes) return;
  transfer.issued = transfer.bytes;
  Transfer* before = nullptr;
  for (Transfer* t = first_pending_; t != &transfer; t = t->next) before = t;
  (before ? before->next : first_pending_) = transfer.next;
  if (last_pending_ == &transfer) last_pending_ = before;
  transfer.next = nullptr;
}

void Lane::finish_if_complete(Transfer& transfer) {
  if (transfer.issued < transfer.bytes || transfer.chunks > 0) return;
  --running_;
  if (transfer.error) {
    transfer.failed = true;
  } else {
    release(transfer);
  }
  progress_.notify_all();
}

void Lane::release(Transfer& transfer) {
  transfer.error = nullptr;
  transfer.failed = false;
  transfer.issued = 0;
  ++transfer.turn;
  transfer.next = std::exchange(free_transfers_, &transfer);
}

}  // namespace headrace::nvme
