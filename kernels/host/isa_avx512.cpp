// SPDX-License-Identifier: Apache-2.0
// The inner loops for AVX-512 F, BW, DQ, VL; flags in kernels/CMakeLists.txt.
#define HEADRACE_ISA isa_avx512
#define HEADRACE_LANES 16
#include "kernels/host/simd/table.h"
