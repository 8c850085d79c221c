// SPDX-License-Identifier: Apache-2.0
#include "cli/failure_text.h"

#include <cerrno>
#include <system_error>

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

}  // namespace

std::string failure_text(const std::exception& error) {
  const std::string text = error.what();
  if (const auto* io = dynamic_cast<const IoError*>(&error)) {
    return io->error_code == EAGAIN ? text : text + limit_behind(io->error_code);
  }
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    return text + limit_behind(system->code().value());
  }
  return text;
}

}  // namespace headrace::cli
