// SPDX-License-Identifier: Apache-2.0
// What `headrace doctor` finds, one line each: the thing, its state, what is known, and what to do about it.
// The checks only look; nothing is changed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headrace::cli {

enum class FindingState : uint8_t { ok, warn, missing };

struct Finding {
  std::string what;
  FindingState state;
  std::string facts;
  std::string remedy = {};  ///< empty when there is nothing to do
};

/// io_uring, locked memory, huge pages, instruction sets, GPUs.
std::vector<Finding> examine_machine();
/// Whether `path` can hold swapped state: writable, free space, O_DIRECT, leftovers of dead runs.
std::vector<Finding> examine_path(const std::string& path);

/// "ok       io_uring           available ..." and, indented, the remedy.
std::string finding_text(const Finding& finding);

/// The chosen word of a kernel switch such as "always [madvise] never"; empty when there is none.
std::string chosen_word(const std::string& switch_text);

}  // namespace headrace::cli
