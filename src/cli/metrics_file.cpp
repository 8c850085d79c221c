// SPDX-License-Identifier: Apache-2.0
#include "cli/metrics_file.h"

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "headrace/error.h"

namespace headrace::cli {
namespace {

namespace fs = std::filesystem;

void set_aside(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return;
  for (unsigned number = 1;; ++number) {
    const std::string aside = path + "." + std::to_string(number);
    if (fs::exists(aside, error)) continue;
    fs::rename(path, aside, error);
    if (error) throw IoError("rename", path, error.value());
    return;
  }
}

/// A pipe would be waited for, and a folder or device has no lines.
void check_is_regular(const std::string& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (!fs::exists(status) || fs::is_regular_file(status)) return;
  throw Error("log.dir: " + path + " is not a regular file; move it away or name another folder");
}

/// Cuts what follows the last end of line.
void drop_torn_line(const std::string& path) {
  check_is_regular(path);
  std::ifstream file(path, std::ios::binary);
  if (!file) return;
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t end = text.rfind('\n');
  std::error_code error;
  fs::resize_file(path, end == std::string::npos ? 0 : end + 1, error);
  if (error) throw IoError("truncate", path, error.value());
}

}  // namespace

MetricsFile::MetricsFile(const std::string& log_dir, bool resumed) : path_(log_dir + "/metrics.jsonl") {
  std::error_code error;
  fs::create_directories(log_dir, error);
  if (error) throw IoError("make folder", log_dir, error.value());
  if (resumed) {
    drop_torn_line(path_);
  } else {
    set_aside(path_);
  }
  errno = 0;
  file_.open(path_, std::ios::binary | std::ios::app);
  if (!file_) throw IoError("open", path_, errno);
}

void MetricsFile::append(std::string_view line) {
  errno = 0;
  file_ << line << '\n' << std::flush;
  if (!file_) throw IoError("write", path_, errno);
}

}  // namespace headrace::cli
