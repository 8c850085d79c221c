// SPDX-License-Identifier: Apache-2.0
// SIGINT, SIGTERM and SIGHUP: the first asks the command to end in order, the second ends the process at
// once. A SIGHUP that was ignored from the start (nohup) stays ignored.
#pragma once

namespace headrace::cli {

void catch_stop_signals();
/// A signal has come.
[[nodiscard]] bool stop_requested();

/// A closed pipe and a file size limit become errors of the write that meets them, not the end of the
/// process.
void make_write_failures_errors();

}  // namespace headrace::cli
