// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "headrace/error.h"

namespace headrace::cli {
namespace {

int first_output_error = 0;

void keep_error(std::FILE* out, bool failed) {
  if (failed && out == stdout && first_output_error == 0) first_output_error = errno ? errno : EIO;
}

}  // namespace

void fill_standard_descriptors() {
  for (const int wanted : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(wanted, F_GETFD) >= 0) continue;
    // The lowest free descriptor is the wanted one. Opened the other way round, so that using it is EBADF.
    const int flags = wanted == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (::open("/dev/null", flags) != wanted && ::open("/", O_RDONLY) != wanted) ::_exit(EXIT_FAILURE);
  }
}

void write_text(std::FILE* out, std::string_view text) {
  errno = 0;
  keep_error(out, std::fwrite(text.data(), 1, text.size(), out) != text.size());
}

void flush(std::FILE* out) {
  errno = 0;
  keep_error(out, std::fflush(out) != 0);
}

int output_error() {
  flush(stdout);
  return first_output_error;
}

void check_output() {
  if (const int code = output_error()) {
    throw Error(fmt::format("standard output could not be written: {}", std::strerror(code)));
  }
}

}  // namespace headrace::cli
