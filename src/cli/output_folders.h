// SPDX-License-Identifier: Apache-2.0
// The folders a training writes its results to, proven before its first step: that they are there and can be
// written, and that a saved run has room. Hours of training must not end at a mistyped path.
#pragma once

#include <string>

#include "train/trainer.h"

namespace headrace::cli {

/// Makes the folder when it is not there and writes into it; IoError names `key`.
void prepare_folder(const std::string& key, const std::string& path);

/// Bytes of a saved run: masters and two moments of every parameter, and a little for all else.
uint64_t saved_run_bytes(const Plan& plan);

/// Throws Error naming checkpoint.dir when its file system has no room for a saved run beside the swapped
/// state that the plan puts on the same file system.
void check_room_for_saved_run(const Plan& plan, const Config& config);

}  // namespace headrace::cli
