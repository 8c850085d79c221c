// SPDX-License-Identifier: Apache-2.0
// Tables for a person: what a run moved over which link at what speed and what it waited for, and what a plan
// puts on which tier. Also the plan as JSON. Pure functions.
#pragma once

#include <string>

#include "train/trainer.h"

namespace headrace::cli {

/// Of the whole run; `peak_rss_bytes` 0 when no step ran.
std::string run_report(const RunSummary& summary, const Config& config, uint64_t peak_rss_bytes);

std::string plan_table(const Plan& plan);
std::string plan_json(const Plan& plan);

}  // namespace headrace::cli
