// SPDX-License-Identifier: Apache-2.0
// Collectives between the ranks of a data-parallel group. One implementation here, a group of one; NCCL, MPI
// and ranks-as-threads stand behind the same interface. Calls are made in the same order on every rank.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "headrace/dtype.h"
#include "headrace/stream.h"

namespace headrace {

class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world_size() const = 0;

  /// full [world_size * shard_bytes] = all ranks' shards in rank order. In stream order; shard lies
  /// outside full or at this rank's place in it.
  virtual void all_gather(Stream&, const void* shard, size_t shard_bytes, void* full) = 0;
  /// shard [elems / world_size] = this rank's part of the sum over ranks, added in fp32 in rank order.
  virtual void reduce_scatter(Stream&, const float* full, size_t elems, float* shard) = 0;
  /// values[i] = sum over ranks, in rank order. Blocks the calling thread.
  virtual void all_reduce(std::span<double> values) = 0;
  virtual void barrier() = 0;
  /// Takes the other ranks down with `reason`; a group of one throws it as Error.
  [[noreturn]] virtual void abort(const char* reason) = 0;
};

/// A group of one.
std::unique_ptr<Communicator> make_single_communicator();

}  // namespace headrace
