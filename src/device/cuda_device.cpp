// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_device.h"

#include <fmt/format.h>

#include <cstdint>

#include "device/cuda_info.h"
#include "headrace/error.h"

namespace headrace {
namespace {

using cuda::check;

constexpr double kGiB = double(size_t(1) << 30);
/// Pieces of the plan begin on pages, so the whole does; CUDA promises 256 bytes only.
constexpr size_t kPage = 4096;

int current_gpu() {
  int gpu = 0;
  check(cudaGetDevice(&gpu), "look for a GPU");
  return gpu;
}

/// A pool that holds the plan and no more; a pool grows by granules, so its limit is whole ones.
CudaPoolHandle make_pool(size_t bytes) {
  constexpr size_t kGranule = size_t(32) << 20;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypeNone;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = current_gpu();
  properties.maxSize = (bytes + kGranule - 1) / kGranule * kGranule;
  cudaMemPool_t pool = nullptr;
  check(cudaMemPoolCreate(&pool, &properties), fmt::format("a pool of {} bytes of device memory", bytes));
  return CudaPoolHandle(pool);
}

size_t free_bytes() {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "look at the free device memory");
  return free;
}

[[noreturn]] void refuse(size_t bytes) {
  throw OutOfMemory("device", bytes, free_bytes(), "lower device.memory, or stop other users of the GPU");
}

}  // namespace

CudaMemory::CudaMemory(size_t bytes) : stream_(make_cuda_stream()) {
  if (bytes == 0) return;
  const size_t taken = bytes + kPage;
  if (taken < bytes || taken > free_bytes()) refuse(bytes);
  pool_ = make_pool(taken);
  const cudaError_t error = cudaMallocFromPoolAsync(&allocation_, taken, pool_.get(), stream_.get());
  if (error == cudaErrorMemoryAllocation) refuse(bytes);
  check(error, fmt::format("allocation of {} bytes of device memory", bytes));
  auto* const begin = static_cast<std::byte*>(allocation_);
  bytes_ = {begin + (size_t(-reinterpret_cast<uintptr_t>(begin)) & (kPage - 1)), bytes};
  check(cudaMemsetAsync(bytes_.data(), 0, bytes, stream_.get()), "zeroing of the device memory");
  check(cudaStreamSynchronize(stream_.get()), fmt::format("allocation of {} bytes of device memory", bytes));
}

CudaMemory::~CudaMemory() {
  if (allocation_) (void)cudaFreeAsync(allocation_, stream_.get());
  (void)cudaStreamSynchronize(stream_.get());
}

CudaDevice::CudaDevice(size_t memory_bytes)
    : memory_(memory_bytes), arena_("device", "raise device.memory", memory_.bytes()) {}

CudaDevice::~CudaDevice() {
  // Streams wait for one another, so all of them are idle before the first of them goes.
  for (const CudaStream* stream : {&compute_, &h2d_, &d2h_}) stream->drain();
  for (void* memory : pinned_) (void)cudaHostUnregister(memory);
}

std::string CudaDevice::description() const {
  const GpuInfo gpu = list_gpus().at(size_t(current_gpu()));
  return fmt::format("{}, {:.2f} GiB of {:.1f} GiB, compute capability {}.{}", gpu.name,
                     double(arena_.capacity()) / kGiB, double(gpu.memory_bytes) / kGiB, gpu.capability_major,
                     gpu.capability_minor);
}

void CudaDevice::pin(std::span<std::byte> host_memory) {
  if (host_memory.empty()) return;
  pinned_.reserve(pinned_.size() + 1);
  check(cudaHostRegister(host_memory.data(), host_memory.size(), cudaHostRegisterPortable),
        fmt::format("page-locking of {} bytes of host memory", host_memory.size()));
  pinned_.push_back(host_memory.data());
}

LinkStats CudaDevice::link_stats(Link link) const {
  if (link == Link::h2d) return {.bytes = h2d_.copied_bytes(), .busy_ns = h2d_.busy_ns()};
  if (link == Link::d2h) return {.bytes = d2h_.copied_bytes(), .busy_ns = d2h_.busy_ns()};
  return {};
}

}  // namespace headrace
