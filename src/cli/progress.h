// SPDX-License-Identifier: Apache-2.0
// The progress of a run for a person: on a terminal one line that is rewritten every step, on a pipe one
// plain line per log_every steps. Speeds and waits are means over the steps since the last line. One thread.
#pragma once

#include <cstdio>
#include <string>

#include "train/trainer.h"

namespace headrace::cli {

/// What has been seen since a line was last printed.
struct ProgressWindow {
  Stats sum;  ///< link counters and waits; peaks are unused
  double ms = 0;
  uint64_t tokens = 0;
  uint64_t steps = 0;
  void add(const StepMetrics& metrics, uint64_t step_tokens);
};

/// "step 12/1000 | loss 3.2846 | norm 4.320 | lr 3.00e-04 | 38.3k tok/s | nvme r 5.80 w 3.10 GB/s | wait 12%
/// | left 2m 05s"; the NVMe part is left out when nothing moved there.
std::string progress_line(const StepMetrics& metrics, uint64_t total_steps, const ProgressWindow& window,
                          double seconds_left);

class Progress {
 public:
  Progress(std::FILE* out, uint64_t total_steps, uint64_t log_every);
  void step(const StepMetrics& metrics);
  /// Prints a whole line of its own above the progress line.
  void print(const std::string& line);
  /// Ends a rewritten line.
  void finish();

 private:
  std::FILE* out_;
  bool terminal_;
  uint64_t total_steps_, log_every_;
  ProgressWindow window_;
  uint64_t tokens_ = 0;
  double ms_ = 0;  ///< of all steps seen
  uint64_t steps_ = 0;
  bool open_line_ = false;
};

}  // namespace headrace::cli
