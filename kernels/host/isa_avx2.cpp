// SPDX-License-Identifier: Apache-2.0
// The inner loops for AVX2 with FMA; flags in kernels/CMakeLists.txt.
#define HEADRACE_ISA isa_avx2
#define HEADRACE_LANES 8
#include "kernels/host/simd/table.h"
