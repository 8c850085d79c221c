// SPDX-License-Identifier: Apache-2.0
// The engines every store test can be run on.
#pragma once

#include <string>

#include "nvme/extent_store.h"
#include "nvme/probe.h"

namespace headrace::nvme::test {

inline EngineFactory real_engine(EngineKind kind) {
  std::string note;
  return pick_engine(kind, note);
}

inline bool has_io_uring() {
  static const bool available = probe_io_uring().available;
  return available;
}

}  // namespace headrace::nvme::test
