// SPDX-License-Identifier: Apache-2.0
#include "cli/failure_text.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <exception>
#include <new>
#include <system_error>

#include "cli/byte_text.h"
#include "headrace/error.h"

namespace headrace::cli {
namespace {

const char* limit_behind(int code) {
  switch (code) {
    case EAGAIN:
      return "; no more threads are allowed: raise the limit of processes (ulimit -u, or pids.max of a "
             "container)";
    case EMFILE:
      return "; raise the limit of open files (ulimit -n)";
    case ENFILE:
      return "; raise the system's limit of open files (sysctl fs.file-max)";
    case EFBIG:
      return "; raise the limit of a file's size (ulimit -f)";
    default:
      return "";
  }
}

std::string address_space_text() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return fmt::format("raise the limit of the address space (ulimit -v, now {}), or ",
                     readable_bytes(double(limit.rlim_cur)));
}

/// The limit of the process that is the reason, and how to raise it; empty when none is.
std::string limit_text(const std::exception& error) {
  if (const auto* io = dynamic_cast<const IoError*>(&error)) {
    return io->error_code == EAGAIN ? "" : limit_behind(io->error_code);
  }
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    return limit_behind(system->code().value());
  }
  return {};
}

}  // namespace

std::string failure_text(const std::exception& error) {
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& cause) {
    return error.what() + limit_text(cause);
  }
  if (dynamic_cast<const std::bad_alloc*>(&error)) {
    return fmt::format(
        "out of host memory outside the planned budgets: {}lower offload.host_memory, "
        "device.memory, or nvme.chunk_bytes and nvme.queue_depth",
        address_space_text());
  }
  return error.what() + limit_text(error);
}

}  // namespace headrace::cli
