// SPDX-License-Identifier: Apache-2.0
#include "tests/emulation/fiber.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <new>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace headrace::emulation {
namespace {

namespace context = boost::context::detail;

constexpr size_t kPage = 4096;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr size_t kStackBytes = 256 * 1024;  // instrumented frames are several times as large
#else
constexpr size_t kStackBytes = 64 * 1024;
#endif

}  // namespace

/// What a switch hands over; lives on the stack of the fiber that is left.
struct Fiber::Arrival {
  Fiber* from;
  Fiber* to;
  void* from_context = nullptr;
};

Fiber::Fiber(void (*entry)()) : entry_(entry) {
  map_stack();
  restart();
}

void Fiber::map_stack() {
  stack_bytes_ = kStackBytes;
  void* const mapped = mmap(nullptr, kPage + kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<std::byte*>(mapped);
  mprotect(mapping_, kPage, PROT_NONE);
  stack_ = mapping_ + kPage;
}

Fiber::~Fiber() {
#ifdef __SANITIZE_THREAD__
  if (mapping_ && sanitizer_state_) __tsan_destroy_fiber(sanitizer_state_);
#endif
  if (mapping_) munmap(mapping_, kPage + kStackBytes);
}

void Fiber::adopt_calling_thread() {
#ifdef __SANITIZE_THREAD__
  sanitizer_state_ = __tsan_get_current_fiber();
#endif
}

void Fiber::restart() {
#ifdef __SANITIZE_ADDRESS__
  ASAN_UNPOISON_MEMORY_REGION(mapping_ + kPage, kStackBytes);  // frames that were left never clean up
  sanitizer_state_ = nullptr;
#endif
#ifdef __SANITIZE_THREAD__
  if (sanitizer_state_) __tsan_destroy_fiber(sanitizer_state_);
  sanitizer_state_ = __tsan_create_fiber(0);
#endif
  context_ =
      context::make_fcontext(mapping_ + kPage + kStackBytes, kStackBytes, [](context::transfer_t transfer) {
        Arrival arrival = *static_cast<Arrival*>(transfer.data);
        arrival.from_context = transfer.fctx;
        arrival.to->land(arrival);
        arrival.to->entry_();
      });
}

void Fiber::land(Arrival arrival) {
  arrival.from->context_ = arrival.from_context;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(sanitizer_state_, &arrival.from->stack_, &arrival.from->stack_bytes_);
#endif
}

void switch_fiber(Fiber& from, Fiber& to) {
  Fiber::Arrival departure{&from, &to};
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&from.sanitizer_state_, to.stack_, to.stack_bytes_);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(to.sanitizer_state_, 0);
#endif
  const context::transfer_t transfer = context::jump_fcontext(to.context_, &departure);
  Fiber::Arrival arrival = *static_cast<Fiber::Arrival*>(transfer.data);
  arrival.from_context = transfer.fctx;
  from.land(arrival);
}

}  // namespace headrace::emulation
