// SPDX-License-Identifier: Apache-2.0
// Twins of the instructions that kernels/cuda/port.h wraps: dynamic shared memory, asynchronous copies and
// matrix instructions, as the PTX ISA specifies them. Called on a kernel's threads only. What the hardware
// forbids or leaves undefined (misaligned or foreign addresses, lanes missing) is a fault of the kernel.
#pragma once

#include <cstdint>
#include <source_location>

namespace headrace::emulation {

/// The block's: exactly as many bytes as the launch asked for, NaN patterns at first.
void* shared_memory();

/// The destination holds NaN patterns from here on, and the bytes only after the wait that covers the copy:
/// a wait too few reads NaN, and so does whoever still reads what the copy replaces.
void copy_async_16(void* shared, const void* from, bool valid,
                   std::source_location at = std::source_location::current());
void copy_async_commit();
/// Until at most `pending` of the thread's newest groups are on their way.
void copy_async_wait(int pending);

void load_matrices(uint32_t (&r)[4], const void* row, bool transposed,
                   std::source_location at = std::source_location::current());
/// d += a b. Products are exact; the sums are rounded to fp32 one by one, in the order of the inner index.
void multiply_add_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                          std::source_location at = std::source_location::current());

}  // namespace headrace::emulation
