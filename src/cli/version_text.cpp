// SPDX-License-Identifier: Apache-2.0
// `headrace --version`: what this program was made of. The HEADRACE_*_VERSION values come from the build.
#include <fmt/format.h>

#include "cli/commands.h"
#include "device/cuda_info.h"
#include "headrace/adam.h"

namespace headrace::cli {

std::string version_text() {
  std::string isas;
  for (const adam::Isa isa : {adam::Isa::scalar, adam::Isa::avx2, adam::Isa::avx512}) {
    if (adam::supported(isa)) isas += fmt::format("{} ", adam::isa_name(isa));
  }
  std::string cuda = cuda_build_info();  // "CUDA 13.0, ..." or "none"
  if (cuda.starts_with("CUDA ")) cuda.erase(0, 5);
  return fmt::format(
      "headrace {}\n"
      "compiler          {} ({})\n"
      "instruction sets  {}on this machine; {} in use\n"
      "liburing          {}\n"
      "oneDNN            {}\n"
      "oneTBB            {}\n"
      "ISA-L             {}\n"
      "CUDA              {}",
      HEADRACE_VERSION, HEADRACE_COMPILER, HEADRACE_BUILD_TYPE, isas, adam::isa_name(adam::active_isa()),
      HEADRACE_LIBURING_VERSION, HEADRACE_ONEDNN_VERSION, HEADRACE_TBB_VERSION, HEADRACE_ISAL_VERSION, cuda);
}

}  // namespace headrace::cli
