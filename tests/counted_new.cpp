// SPDX-License-Identifier: Apache-2.0
// In a file of its own: a compiler that sees both a replaced operator and its use warns of mismatched pairs.
#include "counted_new.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<size_t> allocations{0}, allocations_off_compute{0}, largest_on_compute{0};

bool on_compute_thread() {
  thread_local const bool compute = [] {
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof name);
    return std::strcmp(name, "hr-compute") == 0;
  }();
  return compute;
}

void count(size_t bytes) {
  ++allocations;
  if (!on_compute_thread()) {
    ++allocations_off_compute;
    return;
  }
  size_t largest = largest_on_compute.load();
  while (bytes > largest && !largest_on_compute.compare_exchange_weak(largest, bytes)) {
  }
}

}  // namespace

namespace headrace {
size_t allocation_count() {
  return allocations.load();
}
size_t allocation_count_off_compute() {
  return allocations_off_compute.load();
}
size_t largest_allocation_on_compute() {
  return largest_on_compute.load();
}
void reset_largest_on_compute() {
  largest_on_compute = 0;
}
}  // namespace headrace

void* operator new(size_t bytes) {
  count(bytes);
  if (void* const memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  count(bytes);
  const size_t multiple = size_t(alignment);
  if (void* const memory = std::aligned_alloc(multiple, (bytes + multiple - 1) / multiple * multiple))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
