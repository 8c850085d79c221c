// SPDX-License-Identifier: Apache-2.0
#include "cli/stop_signal.h"

#include <csignal>

namespace headrace::cli {
namespace {

volatile std::sig_atomic_t stop_signal = 0;

void on_signal(int number) {
  stop_signal = number;
  // Whichever comes next has its usual effect.
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() {
  return stop_signal != 0;
}

}  // namespace headrace::cli
