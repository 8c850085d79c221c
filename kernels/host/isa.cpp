// SPDX-License-Identifier: Apache-2.0
// Picks the instruction set once per process.
#include "kernels/host/isa.h"

#include <cstdlib>
#include <string>

#include "headrace/error.h"

namespace headrace::kernels::host {
namespace {

Isa best_isa() {
  if (supported(Isa::avx512)) return Isa::avx512;
  return supported(Isa::avx2) ? Isa::avx2 : Isa::scalar;
}

Isa chosen_isa() {
  const char* asked = std::getenv("HEADRACE_ISA");
  if (!asked || !*asked) return best_isa();
  const std::string name = asked;
  if (name != "scalar" && name != "avx2" && name != "avx512") {
    throw ConfigError("HEADRACE_ISA", "\"" + name + "\" is not one of scalar, avx2, avx512");
  }
  const Isa isa = name == "avx512" ? Isa::avx512 : name == "avx2" ? Isa::avx2 : Isa::scalar;
  if (!supported(isa)) throw ConfigError("HEADRACE_ISA", "this CPU has no " + name);
  return isa;
}

}  // namespace

bool supported(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  if (isa == Isa::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return isa == Isa::scalar;
}

const IsaKernels& isa_kernels(Isa isa) {
  HEADRACE_CHECK(supported(isa), "instruction set not supported by this CPU");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return isa_avx512::kKernels;
  if (isa == Isa::avx2) return isa_avx2::kKernels;
#endif
  return isa_scalar::kKernels;
}

const IsaKernels& isa_kernels() {
  static const IsaKernels& kernels = isa_kernels(chosen_isa());
  return kernels;
}

}  // namespace headrace::kernels::host
