// SPDX-License-Identifier: Apache-2.0
// Spreads one update over threads: whole tiles, one contiguous run of them per thread, so that the hardware
// prefetchers see long streams and no two threads share a cache line for long. Elements are independent,
// hence the result does not depend on who computes what.
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "cpu_adam/cpu_order.h"
#include "cpu_adam/isa_kernels.h"
#include "headrace/adam.h"
#include "headrace/error.h"

namespace headrace::adam {

namespace {

/// Gives every thread that works in an arena a CPU of its own for as long as it does.
class Pinning final : public tbb::task_scheduler_observer {
 public:
  explicit Pinning(tbb::task_arena& arena)
      : task_scheduler_observer(arena), order_(pinning_order(allowed_cpus())) {
    observe(true);
  }
  ~Pinning() override { observe(false); }
  void on_scheduler_entry(bool) override {
    const int slot = tbb::this_task_arena::current_thread_index();
    if (slot < 0 || order_.empty()) return;
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(order_[size_t(slot) % order_.size()], &one);
    pinned_ = sched_setaffinity(0, sizeof(one), &one) == 0;
  }
  void on_scheduler_exit(bool) override {
    if (pinned_) sched_setaffinity(0, sizeof(before_), &before_);
    pinned_ = false;
  }

 private:
  const std::vector<int> order_;
  static thread_local cpu_set_t before_;
  static thread_local bool pinned_;
};
thread_local cpu_set_t Pinning::before_;
thread_local bool Pinning::pinned_ = false;

}  // namespace

struct Workers::Impl {
  Impl(int threads, bool pin) : arena(threads) {
    if (pin) pinning.emplace(arena);
  }
  tbb::task_arena arena;
  std::optional<Pinning> pinning;

  /// Calls part(begin, end) so that the parts cover [0, count) once; returns when all have returned.
  template <class Part>
  void spread(size_t count, const Part& part) {
    const size_t tiles = (count + kTileElems - 1) / kTileElems;
    const size_t parts = std::min(tiles, size_t(arena.max_concurrency()));
    if (parts <= 1) return part(size_t{0}, count);
    arena.execute([&] {
      tbb::parallel_for(
          size_t{0}, parts,
          [&](size_t k) {
            part(tiles * k / parts * kTileElems, std::min(tiles * (k + 1) / parts * kTileElems, count));
          },
          tbb::static_partitioner{});
    });
  }
};

namespace {

int usable(int threads) {
  HEADRACE_CHECK(threads >= 0, "a number of threads is not negative");
  active_isa();  // so that a wrong HEADRACE_ISA is reported here and not in the middle of a step
  // oneTBB would warn on stderr about threads it cannot supply.
  const auto limit = tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  return threads == 0 ? tbb::task_arena::automatic : std::min(threads, int(limit));
}

}  // namespace

Workers::Workers(int threads, bool pin) : impl_(std::make_unique<Impl>(usable(threads), pin)) {}
Workers::~Workers() = default;
Workers::Workers(Workers&&) noexcept = default;
Workers& Workers::operator=(Workers&&) noexcept = default;

int Workers::threads() const {
  return impl_->arena.max_concurrency();
}

void Workers::for_each(size_t count, const std::function<void(size_t)>& job) {
  const size_t parts = std::min(count, size_t(threads()));
  const auto run = [&](size_t part) {
    for (size_t i = count * part / parts; i < count * (part + 1) / parts; ++i) job(i);
  };
  if (parts <= 1) {
    for (size_t i = 0; i < count; ++i) job(i);
    return;
  }
  impl_->arena.execute([&] { tbb::parallel_for(size_t{0}, parts, run, tbb::static_partitioner{}); });
}

void Workers::update(const Format& format, std::span<const ScaledSpan> spans) {
  const Isa isa = active_isa();
  size_t count = 0;
  for (const ScaledSpan& item : spans) count += item.span.count;
  impl_->spread(count, [&](size_t begin, size_t end) {
    size_t first = 0;  // of the span in the list
    // Where a part begins or ends within a span, at the next whole block of it.
    const auto within = [&first](size_t at, size_t elems) {
      const size_t index = at < first ? 0 : (at - first + kBlockElems - 1) / kBlockElems * kBlockElems;
      return std::min(index, elems);
    };
    for (const ScaledSpan& item : spans) {
      const size_t from = within(begin, item.span.count), to = within(end, item.span.count);
      if (from < to) update_unfenced(isa, format, item.span.part(format, from, to - from), *item.scalars);
      first += item.span.count;
      if (first >= end) break;
    }
    fence(isa);
  });
}

void Workers::adamw(std::span<float> w, std::span<float> m, std::span<float> v, Gradient grad,
                    const StepScalars& s) {
  HEADRACE_CHECK(m.size() == w.size() && v.size() == w.size(), "spans differ in length");
  const ScaledSpan whole{{.count = w.size(), .w = w.data(), .m = m.data(), .v = v.data(), .grad = grad}, &s};
  update({}, {&whole, 1});
}

void Workers::adamw(std::span<bf16> hi, std::span<uint16_t> lo, std::span<float> m, std::span<float> v,
                    Gradient grad, const StepScalars& s) {
  HEADRACE_CHECK(lo.size() == hi.size() && m.size() == hi.size() && v.size() == hi.size(),
                 "spans differ in length");
  const ScaledSpan whole{
      {.count = hi.size(), .hi = hi.data(), .lo = lo.data(), .m = m.data(), .v = v.data(), .grad = grad}, &s};
  update({.weights = WeightFormat::split}, {&whole, 1});
}

SumSquares Workers::sum_squares(Gradient grad, size_t count) {
  constexpr size_t kTiles = 256;  // their sums fit the stack: 2 KiB for 16 Mi elements
  double sum = 0;
  for (size_t first = 0; first < count; first += kTiles * kTileElems) {
    const size_t batch = std::min(count - first, kTiles * kTileElems);
    double tile_sums[kTiles];
    impl_->spread(batch, [&](size_t begin, size_t end) {
      for (size_t at = begin; at < end; at += kTileElems) {
        const size_t elems = std::min(kTileElems, end - at);
        tile_sums[at / kTileElems] = adam::sum_squares(grad.from(first + at), elems).sum;
      }
    });
    for (size_t at = 0; at < batch; at += kTileElems) sum += tile_sums[at / kTileElems];
  }
  return {.sum = sum, .finite = std::isfinite(sum)};
}

}  // namespace headrace::adam
