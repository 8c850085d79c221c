// SPDX-License-Identifier: Apache-2.0
// The inner loops for plain x86-64 (SSE2) and other CPUs; flags in kernels/CMakeLists.txt.
#define HEADRACE_ISA isa_scalar
#define HEADRACE_LANES 4
#include "kernels/host/simd/table.h"
