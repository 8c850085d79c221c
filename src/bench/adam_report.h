// SPDX-License-Identifier: Apache-2.0
// A measurement of the update as JSON for programs and as a table for people (docs/benchmarks.md says what
// the columns mean). Pure functions.
#pragma once

#include <string>

#include "bench/adam_bench.h"

namespace headrace::bench {

/// {"machine": {...}, "rows": [{"variant", ...}]}, with a line feed at the end.
std::string adam_json(const AdamBench& bench);

/// Some lines about the machine, a line for each row, and a warning when quartiles are wide.
std::string adam_table(const AdamBench& bench);

}  // namespace headrace::bench
