// SPDX-License-Identifier: Apache-2.0
#include "device/range.h"

#ifdef HEADRACE_HAVE_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace headrace {

#ifdef HEADRACE_HAVE_CUDA
Range::Range(const char* name) {
  nvtxRangePushA(name);
}
Range::~Range() {
  nvtxRangePop();
}
#else
Range::Range(const char*) {}
Range::~Range() = default;
#endif

}  // namespace headrace
