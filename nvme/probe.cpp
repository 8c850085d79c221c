// SPDX-License-Identifier: Apache-2.0
#include "nvme/probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <linux/stat.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "nvme/file_descriptor.h"
#include "nvme/io_uring_engine.h"
#include "nvme/page_block.h"
#include "nvme/posix_engine.h"

namespace headrace::nvme {
namespace {

constexpr size_t kBlockBytes = 4096;

std::string refusal_reason(int code) {
  switch (code) {
    case EPERM:
    case EACCES:
      return "not permitted: sysctl kernel.io_uring_disabled or a seccomp filter (a container's default) "
             "refuses it";
    case ENOSYS:
      return "unknown to this kernel (5.1 or later has it) or hidden by a seccomp filter";
    case ENOMEM:
      return fmt::format("no memory for the ring: RLIMIT_MEMLOCK is {}", memlock_limit_text());
    case EMFILE:
    case ENFILE:
      return "no file descriptor left: raise RLIMIT_NOFILE";
    case EINVAL:
      return "this kernel refuses the ring's parameters";
    default:
      return std::strerror(code);
  }
}

int run_nop(io_uring& ring) {
  io_uring_prep_nop(io_uring_get_sqe(&ring));
  // seccomp may let the set-up through and refuse io_uring_enter only: this is where that shows.
  const int submitted = io_uring_submit_and_wait(&ring, 1);
  if (submitted < 0) return submitted;
  io_uring_cqe* cqe = nullptr;
  const int waited = io_uring_wait_cqe(&ring, &cqe);
  if (waited < 0) return waited;
  const int result = cqe->res;
  io_uring_cqe_seen(&ring, cqe);
  return result;
}

void probe_features(io_uring& ring, IoUringSupport& support) {
  support.single_issuer = (ring.flags & IORING_SETUP_SINGLE_ISSUER) != 0;
  support.defer_taskrun = (ring.flags & IORING_SETUP_DEFER_TASKRUN) != 0;
  support.coop_taskrun = (ring.flags & IORING_SETUP_COOP_TASKRUN) != 0;
  support.registered_files = io_uring_register_files_sparse(&ring, 1) == 0;
  const PageBlock page(kBlockBytes);
  const iovec buffer{page.data(), page.size()};
  const int registered = io_uring_register_buffers(&ring, &buffer, 1);
  support.registered_buffers = registered == 0;
  support.buffers_error_code = -registered;
  if (registered == 0) io_uring_unregister_buffers(&ring);
}

FileDescriptor open_scratch(const std::string& directory, int flags) {
  std::string name = fmt::format("{}/headrace-probe-{}-{}", directory, ::getpid(), ::gettid());
  FileDescriptor file(::open(name.c_str(), flags | O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  const int code = errno;
  if (file || code == EINVAL) ::unlink(name.c_str());  // EINVAL of O_DIRECT may come after the file was made
  errno = code;
  return file;
}

void query_alignment(int fd, DirectSupport& support) {
  struct statx status {};
  support.memory_alignment = support.offset_alignment = kBlockBytes;
  const bool told = ::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
                    (status.stx_mask & STATX_DIOALIGN) != 0 && status.stx_dio_offset_align != 0;
  if (!told) return;
  support.memory_alignment = status.stx_dio_mem_align;
  support.offset_alignment = status.stx_dio_offset_align;
}

std::string file_system_name(long type) {
  struct Known {
    long magic;
    const char* name;
  };
  static constexpr std::array kKnown = {
      Known{EXT4_SUPER_MAGIC, "ext4"},
      Known{XFS_SUPER_MAGIC, "xfs"},
      Known{BTRFS_SUPER_MAGIC, "btrfs"},
      Known{F2FS_SUPER_MAGIC, "f2fs"},
      Known{TMPFS_MAGIC, "tmpfs"},
      Known{RAMFS_MAGIC, "ramfs"},
      Known{OVERLAYFS_SUPER_MAGIC, "overlay"},
      Known{NFS_SUPER_MAGIC, "nfs"},
      Known{FUSE_SUPER_MAGIC, "fuse"},
      Known{0x2fc12fc1, "zfs"},
      Known{0x0bd00bd0, "lustre"},
      Known{0x47504653, "gpfs"},
  };
  for (const Known& known : kKnown) {
    if (known.magic == type) return known.name;
  }
  return fmt::format("{:#x}", static_cast<unsigned long>(type));
}

}  // namespace

IoUringSupport probe_io_uring() {
  IoUringSupport support;
  io_uring ring{};
  int result = init_ring(4, &ring);
  if (result == 0) {
    result = run_nop(ring);
    if (result >= 0) probe_features(ring, support);
    io_uring_queue_exit(&ring);
  }
  support.available = result >= 0;
  support.error_code = support.available ? 0 : -result;
  if (!support.available) support.reason = refusal_reason(-result);
  return support;
}

unsigned store_thread_count(EngineKind engine, unsigned queue_depth) {
  const bool pools =
      engine == EngineKind::posix || (engine == EngineKind::automatic && !probe_io_uring().available);
  return 2 * (pools ? std::clamp(queue_depth, 1u, PosixEngine::kMaxThreads) : 1);
}

DirectSupport probe_direct(const std::string& directory) {
  DirectSupport support;
  const FileDescriptor file = open_scratch(directory, O_DIRECT);
  if (!file) {
    support.reason = errno == EINVAL ? "the file system has no O_DIRECT" : std::strerror(errno);
    return support;
  }
  query_alignment(file.get(), support);
  const size_t bytes = std::max<size_t>({kBlockBytes, support.memory_alignment, support.offset_alignment});
  const PageBlock block(bytes);
  // Some file systems take the flag at open and refuse the transfer.
  const bool moved = ::pwrite(file.get(), block.data(), bytes, 0) == ssize_t(bytes) &&
                     ::pread(file.get(), block.data(), bytes, 0) == ssize_t(bytes);
  if (moved) {
    support.available = true;
  } else {
    support.reason = fmt::format("an O_DIRECT transfer was refused: {}", std::strerror(errno));
  }
  return support;
}

PathSupport probe_path(const std::string& directory) {
  PathSupport support;
  struct statfs status {};
  if (::statfs(directory.c_str(), &status) != 0) {
    support.reason = std::strerror(errno);
    return support;
  }
  support.file_system = file_system_name(long(status.f_type));
  support.free_bytes = uint64_t(status.f_bavail) * uint64_t(status.f_bsize);
  support.writable = bool(open_scratch(directory, 0));
  if (!support.writable) support.reason = std::strerror(errno);
  support.direct = probe_direct(directory);
  return support;
}

uint64_t memlock_limit_bytes() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<uint64_t>::max();
  }
  return limit.rlim_cur;
}

std::string memlock_limit_text() {
  const uint64_t bytes = memlock_limit_bytes();
  if (bytes == std::numeric_limits<uint64_t>::max()) return "unlimited";
  return fmt::format("{} KiB", bytes >> 10);
}

}  // namespace headrace::nvme
