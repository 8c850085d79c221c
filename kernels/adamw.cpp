// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw.h"

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/dispatch.h"

namespace headrace::kernels {

void adamw(Stream& stream, std::span<const AdamwSpan> spans) {
  HEADRACE_CHECK(stream.kind() != DeviceKind::host, "the host's updates are made by adam::Workers");
  on_device(
      stream, [] {}, [&](auto on) { cuda::adamw(on, spans); });
}

}  // namespace headrace::kernels
