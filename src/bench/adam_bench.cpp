// SPDX-License-Identifier: Apache-2.0
#include "bench/adam_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>

#include "bench/adam_state.h"
#include "bench/stream_mix.h"
#include "device/device.h"
#include "headrace/error.h"

namespace headrace::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// One thing to time, and its time in every round.
struct Task {
  std::function<void()> run;
  std::vector<double> seconds;
};

/// A variant on a number of threads: tasks that a round runs one after the other.
struct Cell {
  const AdamVariant* variant;
  int threads;
  std::vector<StreamMix> mixes;
  std::vector<Task> tasks;  ///< the update, the lists, the mixes, the reference unless it is the update

  static constexpr size_t kLists = 1, kMixes = kLists + std::size(kTensorElems);
  [[nodiscard]] const std::vector<double>& update() const { return tasks[0].seconds; }
  [[nodiscard]] const std::vector<double>& list(size_t k) const { return tasks[kLists + k].seconds; }
  [[nodiscard]] const std::vector<double>& mix(size_t k) const { return tasks[kMixes + k].seconds; }
  [[nodiscard]] const std::vector<double>& reference() const {
    return tasks.size() == kMixes + mixes.size() ? update() : tasks.back().seconds;
  }

  void run_round(size_t round) {
    for (size_t i = 0; i < tasks.size(); ++i) {
      Task& task = tasks[(i + round) % tasks.size()];
      const Clock::time_point start = Clock::now();
      task.run();
      task.seconds.push_back(seconds_since(start));
    }
  }
};

std::vector<const AdamVariant*> states_needed(const AdamBenchOptions& options) {
  std::vector<const AdamVariant*> needed = {find_adam_variant(kReferenceVariant)};
  for (const AdamVariant* variant : options.variants) {
    if (std::ranges::count(needed, variant) == 0) needed.push_back(variant);
  }
  return needed;
}

HostMemory allocate(size_t bytes) {
  try {
    return HostMemory(bytes);
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(error.tier, error.wanted, error.available, "lower --params or name fewer --variant");
  }
}

/// Owns everything the tasks refer to.
class Measurement {
 public:
  explicit Measurement(const AdamBenchOptions& options)
      : memory_(allocate(adam_bench_bytes(options))),
        scalars_(adam::make_scalars({.lr = 1e-6, .weight_decay = 0.01}, 1000, 1.0)) {
    adam::Workers all;
    std::byte* at = memory_.bytes().data();
    for (const AdamVariant* variant : states_needed(options)) {
      states_.emplace_back(*variant, options.params, at, all);
      at += AdamState::bytes(*variant, options.params);
    }
    for (const AdamVariant* variant : options.variants)
      for (const int threads : options.threads) add_cell(*variant, threads);
  }

  void warm_up() {
    for (Cell& cell : cells_) cell.tasks[0].run();
  }
  void run_round(size_t round) {
    for (size_t i = 0; i < cells_.size(); ++i) cells_[(i + round) % cells_.size()].run_round(round);
  }
  [[nodiscard]] const std::deque<Cell>& cells() const { return cells_; }
  [[nodiscard]] size_t bytes() const { return memory_.bytes().size(); }

 private:
  AdamState& state_of(const AdamVariant& variant) {
    return *std::ranges::find(states_, &variant, [](const AdamState& state) { return &state.variant(); });
  }

  void add_cell(const AdamVariant& variant, int threads) {
    adam::Workers& workers = workers_.emplace_back(threads);
    AdamState& state = state_of(variant);
    Cell& cell = cells_.emplace_back(&variant, threads, stream_mixes(variant.format, variant.gradient));
    cell.tasks.push_back(update_task(state, workers, state.flat().count));
    for (const size_t elems : kTensorElems) cell.tasks.push_back(update_task(state, workers, elems));
    for (const StreamMix& mix : cell.mixes) {
      cell.tasks.push_back({[&state, &workers, run = mix.run] {
        run_mix(run, state.variant().format, state.flat(), workers);
      }});
    }
    AdamState& reference = states_.front();
    if (&reference != &state) {
      cell.tasks.push_back(update_task(reference, workers, reference.flat().count));
    }
  }

  Task update_task(const AdamState& state, adam::Workers& workers, size_t tensor_elems) {
    return {[list = state.tensors(tensor_elems, scalars_), format = state.variant().format, &workers] {
      workers.update(format, list);
    }};
  }

  HostMemory memory_;
  adam::StepScalars scalars_;
  std::deque<AdamState> states_;  // deques: tasks hold references
  std::deque<adam::Workers> workers_;
  std::deque<Cell> cells_;
};

/// values[i] / seconds[i] of a constant value.
Quartiles rate(double amount, const std::vector<double>& seconds) {
  return paired_ratio(std::vector<double>(seconds.size(), amount), seconds);
}

/// The mix with the smallest median of its share: the fastest over the run. Choosing anew in each round would
/// compare the luckiest of several samples with one of the update.
size_t fastest_mix(const Cell& cell) {
  size_t best = 0;
  double best_share = INFINITY;
  for (size_t k = 0; k < cell.mixes.size(); ++k) {
    const double share = paired_ratio(cell.mix(k), cell.update()).median;
    if (share < best_share) best = k, best_share = share;
  }
  return best;
}

AdamRow row_of(const Cell& cell, size_t params) {
  const size_t fastest = fastest_mix(cell);
  const std::vector<double>& roof = cell.mix(fastest);
  const double bytes_per_param = adam::bytes_moved(cell.variant->format, cell.variant->gradient);
  AdamRow row{.variant = cell.variant,
              .threads = cell.threads,
              .bytes_per_param = bytes_per_param,
              .params_per_s = rate(double(params), cell.update()),
              .useful_bytes_per_s = rate(double(params) * bytes_per_param, cell.update()),
              .roof_bytes_per_s = rate(double(params) * bytes_per_param, roof),
              .roof_mix = cell.mixes[fastest].name,
              .roofline_share = paired_ratio(roof, cell.update()),
              .time_vs_28b = paired_ratio(cell.update(), cell.reference())};
  for (size_t k = 0; k < cell.mixes.size(); ++k) {
    row.mixes.emplace_back(cell.mixes[k].name, paired_ratio(cell.mix(k), cell.update()));
  }
  for (size_t k = 0; k < std::size(kTensorElems); ++k) {
    row.small_list[k] = paired_ratio(cell.update(), cell.list(k));
  }
  return row;
}

}  // namespace

size_t adam_bench_bytes(const AdamBenchOptions& options) {
  size_t bytes = 0;
  for (const AdamVariant* variant : states_needed(options))
    bytes += AdamState::bytes(*variant, options.params);
  return bytes;
}

AdamBench measure_adam(const AdamBenchOptions& options) {
  HEADRACE_CHECK(options.params > 0 && options.params % adam::kTileElems == 0, "whole tiles");
  HEADRACE_CHECK(options.rounds > 0 && !options.threads.empty() && !options.variants.empty(),
                 "something to measure");
  AdamBench bench{.machine = describe_machine(), .params = options.params, .rounds = options.rounds};
  Measurement measurement(options);
  bench.machine.huge_share = huge_page_share(measurement.bytes());
  const bool two_cores = bench.machine.cores > 1 && std::ranges::max(options.threads) > 1;
  std::vector<double> ping_pong;
  measurement.warm_up();
  const Clock::time_point start = Clock::now();
  for (int round = 0; round < options.rounds; ++round) {
    if (two_cores) {
      if (const std::optional<double> ns = ping_pong_ns()) ping_pong.push_back(*ns);
    }
    measurement.run_round(size_t(round));
    options.after_round(round + 1, seconds_since(start));
  }
  if (!ping_pong.empty()) bench.machine.ping_pong_ns = quartiles_of(ping_pong);
  for (const Cell& cell : measurement.cells()) bench.rows.push_back(row_of(cell, options.params));
  return bench;
}

}  // namespace headrace::bench
