// SPDX-License-Identifier: Apache-2.0
// LOG_DIR/metrics.jsonl. A fresh run sets an older file aside (metrics.jsonl.1, .2, ...); a resumed run
// appends to it, without the torn last line that a kill may have left. Every line is flushed. One thread.
#pragma once

#include <fstream>
#include <string>
#include <string_view>

namespace headrace::cli {

class MetricsFile {
 public:
  /// Makes the folder and opens the file. Throws IoError, or Error when a resumed run's
  /// file is not a regular one.
  MetricsFile(const std::string& log_dir, bool resumed);
  /// Appends `line` and an end of line. Throws IoError.
  void append(std::string_view line);
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace headrace::cli
