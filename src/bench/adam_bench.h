// SPDX-License-Identifier: Apache-2.0
// The measurement behind `headrace bench adam`: the update in variants beside the memory's roof. Every round
// runs everything once, what is compared next to each other and in an order that rotates from round to round;
// ratios are taken within a round, so that a machine whose speed drifts does not change them.
#pragma once

#include <cstddef>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "bench/adam_variants.h"
#include "bench/machine.h"
#include "bench/quartiles.h"

namespace headrace::bench {

/// Elements of the tensors whose lists are compared with one span.
constexpr size_t kTensorElems[] = {4096, 16384, 65536};

struct AdamBenchOptions {
  size_t params = 0;  ///< a multiple of adam::kTileElems
  std::vector<int> threads;
  std::vector<const AdamVariant*> variants;
  int rounds = 15;
  /// Called when a round ends, with how many have and the seconds since the first began.
  std::function<void(int done, double seconds)> after_round = [](int, double) {};
};

/// Of one variant on one number of threads.
struct AdamRow {
  const AdamVariant* variant;
  int threads;
  double bytes_per_param;
  Quartiles params_per_s, useful_bytes_per_s;
  Quartiles roof_bytes_per_s;  ///< of the fastest mix
  std::string roof_mix;        ///< its name
  /// Of each mix by itself: time of the mix / time of the update.
  std::vector<std::pair<std::string, Quartiles>> mixes;
  Quartiles roofline_share;  ///< time of that mix / time of the update, paired
  Quartiles time_vs_28b;
  Quartiles small_list[std::size(kTensorElems)];  ///< time of the one span / time of the list
};

struct AdamBench {
  Machine machine;
  size_t params;
  int rounds;
  std::vector<AdamRow> rows;  ///< by variant, then threads
};

/// Memory the measurement takes: a state for each variant, and for the reference.
size_t adam_bench_bytes(const AdamBenchOptions& options);

/// Throws OutOfMemory when the machine does not have adam_bench_bytes().
AdamBench measure_adam(const AdamBenchOptions& options);

}  // namespace headrace::bench
