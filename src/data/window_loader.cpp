// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "data/token_source.h"
#include "headrace/error.h"

namespace headrace {
namespace {

/// Finalizer of splitmix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
constexpr uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr unsigned kRounds = 8;
// Few windows are embedded in 2^8 places: smaller Feistel halves would reach only few permutations.
constexpr unsigned kMinHalfBits = 4;

/// A balanced Feistel network: a bijection of [0, 2^(2 half_bits)) for any round function.
constexpr uint64_t feistel(uint64_t key, unsigned half_bits, uint64_t x) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = x >> half_bits, right = x & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t next = left ^ (mix(key ^ mix(right << 8 | round)) & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

uint64_t shuffled_window(uint64_t seed, uint64_t epoch, uint64_t window_count, uint64_t index) {
  HEADRACE_CHECK(index < window_count, "no such place in the epoch");
  HEADRACE_CHECK(window_count <= uint64_t{1} << 48, "more windows than a shuffle can name");
  const uint64_t key = mix(mix(seed) + epoch);
  const auto half_bits = std::max(kMinHalfBits, unsigned(std::bit_width(window_count - 1) + 1) / 2);
  // Cycle walking (Black, Rogaway 2002): following the cycle until it is back in range permutes the range.
  uint64_t x = feistel(key, half_bits, index);
  while (x >= window_count) x = feistel(key, half_bits, x);
  return x;
}

WindowLoader::WindowLoader(const TokenSource& source, uint64_t seed, int rank, int world_size)
    : source_(source), seed_(seed), rank_(rank), world_size_(world_size) {
  HEADRACE_CHECK(world_size >= 1 && rank >= 0 && rank < world_size, "rank outside the world");
}

bool WindowLoader::next(Batch& batch, bool stop_at_epoch) {
  HEADRACE_CHECK(batch.batch >= 1, "a micro-batch has rows");
  const uint64_t count = source_.window_count();
  if (position_.window == count) {
    if (stop_at_epoch) return false;
    position_ = {.epoch = position_.epoch + 1, .window = 0};
  }
  const auto rows = uint64_t(batch.batch);
  const uint64_t first = position_.window + uint64_t(rank_) * rows;
  for (uint64_t row = 0; row < rows; ++row) {
    const uint64_t place = first + row;
    if (place < count) {
      const uint64_t window = shuffled_window(seed_, position_.epoch, count, place);
      source_.read_window(window, batch, int64_t(row));
    } else {
      fill_row(batch, int64_t(row), {}, {});
    }
  }
  position_.window += std::min(rows * uint64_t(world_size_), count - position_.window);
  return true;
}

DataPosition WindowLoader::position() const {
  return position_;
}

void WindowLoader::seek(const DataPosition& position) {
  if (position.window > source_.window_count()) {
    throw ConfigError("data.seq_len",
                      fmt::format("the position to continue from is window {} of an epoch, but "
                                  "the data has {} windows of this length",
                                  position.window, source_.window_count()));
  }
  position_ = position;
}

}  // namespace headrace
