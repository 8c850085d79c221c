// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw.h"

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/dispatch.h"

namespace headrace::kernels {

void adamw(Stream& stream, const AdamwSpan& span) {
  HEADRACE_CHECK(stream.kind() != DeviceKind::host, "the host's updates are made by adam::Workers");
  on_device(
      stream, [] {}, [&](auto on) { cuda::adamw(on, span); });
}

}  // namespace headrace::kernels
