// SPDX-License-Identifier: Apache-2.0
// Lines of metrics.jsonl: one JSON object each, numbers as their shortest exact text, non-finite numbers as
// null. Pure functions; metrics_file.h puts the lines in the file. Fields: docs/metrics.md.
#pragma once

#include <string>

#include "train/trainer.h"

namespace headrace::cli {

/// Each without the end of line.
std::string train_line(const StepMetrics& metrics);
std::string eval_line(const EvalMetrics& metrics);
std::string resume_line(uint64_t step);
std::string saved_line(uint64_t step, const std::string& folder);

}  // namespace headrace::cli
