// SPDX-License-Identifier: Apache-2.0
// The line that a failed command ends with: what was thrown and, where a limit of the process is the reason,
// which limit that is.
#pragma once

#include <exception>
#include <string>

namespace headrace::cli {

std::string failure_text(const std::exception& error);

}  // namespace headrace::cli
