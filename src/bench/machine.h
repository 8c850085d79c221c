// SPDX-License-Identifier: Apache-2.0
// What a measurement must be read with: the instruction set, cores, pages, and how far apart two cores are. A
// virtual machine's cores may be moved while it runs, which changes the last and with it the bandwidth.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "bench/quartiles.h"

namespace headrace::bench {

struct Machine {
  std::string cpu;  ///< the model's name; empty when the system does not tell
  std::string isa;  ///< that the update uses
  int cores = 0;    ///< that it may use
  /// Of the arrays' memory, the share in huge pages; nullopt when the system does not tell.
  std::optional<double> huge_share;
  /// One way of a cache line between two cores; nullopt when no measurement used two free ones.
  std::optional<Quartiles> ping_pong_ns;
};

/// All but the last two.
Machine describe_machine();

/// "huge", "partly huge", "small" or "unknown".
const char* pages_text(const Machine& machine);

/// The part of `bytes` that this process has in anonymous huge pages, at most 1.
std::optional<double> huge_page_share(size_t bytes);

/// Two threads, on the first and the last CPU of the process, hand a cache line to and fro for 20 ms at most;
/// nullopt when there were no two free cores.
std::optional<double> ping_pong_ns();

}  // namespace headrace::bench
