// SPDX-License-Identifier: Apache-2.0
// What this machine and a path can do for the store, found out by doing it: a real ring with a real
// operation, a real O_DIRECT file. Used by the store when it picks its engine and by `headrace doctor`.
// Nothing is left behind.
#pragma once

#include <cstdint>
#include <string>

#include "headrace/nvme.h"

namespace headrace::nvme {

struct IoUringSupport {
  bool available = false;
  int error_code = 0;  ///< errno of the refusal, 0 when available
  std::string reason;  ///< what that errno means here and what to do; empty when available
  // Features; false when not available.
  bool single_issuer = false;
  bool defer_taskrun = false;
  bool coop_taskrun = false;
  bool registered_files = false;
  bool registered_buffers = false;
  int buffers_error_code = 0;  ///< errno of the refusal to register one page
};
/// Makes a ring, runs an operation through it and registers a page. Takes about a millisecond.
[[nodiscard]] IoUringSupport probe_io_uring();

/// Threads that a store with this engine and depth starts on this machine.
[[nodiscard]] unsigned store_thread_count(EngineKind engine, unsigned queue_depth);

struct DirectSupport {
  bool available = false;
  std::string reason;             ///< empty when available
  uint32_t memory_alignment = 0;  ///< bytes, from statx(STATX_DIOALIGN); 4096 where the kernel does not say
  uint32_t offset_alignment = 0;
};
/// Writes and reads one block with O_DIRECT in `directory` (in a file that is unlinked at once).
[[nodiscard]] DirectSupport probe_direct(const std::string& directory);

struct PathSupport {
  std::string file_system;  ///< "ext4", "xfs", "tmpfs" ..., or its number in hexadecimal
  bool writable = false;
  std::string reason;  ///< why it is not writable
  uint64_t free_bytes = 0;
  DirectSupport direct;
};
[[nodiscard]] PathSupport probe_path(const std::string& directory);

/// RLIMIT_MEMLOCK of this process, UINT64_MAX when unlimited; root is not bound by it.
[[nodiscard]] uint64_t memlock_limit_bytes();
/// The same for a person: "64 KiB" or "unlimited".
[[nodiscard]] std::string memlock_limit_text();

}  // namespace headrace::nvme
