// SPDX-License-Identifier: Apache-2.0
#include "cli/stop_signal.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

namespace headrace::cli {
namespace {

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP};
volatile std::sig_atomic_t stop_signal = 0;

bool is_ignored(int number) {
  struct sigaction action = {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void on_signal(int number) {
  stop_signal = number;
  constexpr std::string_view kNotice =
      "\nheadrace: stopping in order; another signal ends at once, without saving\n";
  // Nothing can be done about a terminal that is gone.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kNotice.data(), kNotice.size());
  // Whichever comes next has its usual effect.
  for (const int other : kStopSignals) {
    if (!is_ignored(other)) std::signal(other, SIG_DFL);
  }
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : kStopSignals) {
    // Started in the background of a script, SIGINT is ignored as well, and who sends it still means it.
    if (number == SIGHUP && is_ignored(number)) continue;
    sigaction(number, &action, nullptr);
  }
}

bool stop_requested() {
  return stop_signal != 0;
}

void make_write_failures_errors() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace headrace::cli
