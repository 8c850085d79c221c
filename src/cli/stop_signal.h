// SPDX-License-Identifier: Apache-2.0
// SIGINT and SIGTERM: the first asks the run to save and end after its step, the second ends the process at
// once.
#pragma once

namespace headrace::cli {

void catch_stop_signals();
/// A signal has come.
[[nodiscard]] bool stop_requested();

}  // namespace headrace::cli
