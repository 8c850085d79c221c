// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <cerrno>
#include <cstring>

#include "headrace/error.h"

namespace headrace::cli {
namespace {

int first_output_error = 0;

void keep_error(std::FILE* out, bool failed) {
  if (failed && out == stdout && first_output_error == 0) first_output_error = errno ? errno : EIO;
}

}  // namespace

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
