// SPDX-License-Identifier: Apache-2.0
// Ranks on GPUs, joined by NCCL: collectives run on CUDA streams, on device memory. Only in builds that found
// NCCL (HEADRACE_HAVE_NCCL on this module).
//
// Sums: NCCL adds in fp32 and in an order that is fixed for a number of ranks, a topology and a choice of its
// algorithm, but is not the order of ranks. Errors: DeviceError with NCCL's text; a group that has met one is
// useless. After abort() on one rank the calls of the others fail as soon as NCCL sees it.
#pragma once

#include <array>
#include <memory>

#include "comm/communicator.h"

namespace headrace {

/// Made by one rank, given to all by whoever starts them.
struct NcclId {
  std::array<char, 128> bytes;
};
NcclId make_nccl_id();

/// Joins the group on the calling thread's GPU; returns when all `world_size` ranks have. Page-locks a page
/// and takes as much device memory for all_reduce(); allocates nothing later.
std::unique_ptr<Communicator> make_nccl_communicator(int rank, int world_size, const NcclId& id);

}  // namespace headrace
