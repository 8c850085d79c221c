// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_communicator.h"

#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "headrace/error.h"
#include "kernels/cuda/check.h"

namespace headrace {
namespace {

void check_nccl(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  throw DeviceError(std::string("NCCL: ") + call + " failed: " + ncclGetErrorString(result) +
                    "; NCCL_DEBUG=WARN tells more");
}

cudaStream_t stream_of(const Stream& stream) {
  HEADRACE_CHECK(stream.kind() == DeviceKind::cuda, "NCCL works on streams of a GPU");
  return static_cast<cudaStream_t>(stream.native_handle());
}

/// Where a few doubles cross from the host to the device and back.
class Exchange {
 public:
  static constexpr size_t kElems = 512;

  Exchange() : host_(std::make_unique<Page>()) {
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creation of a stream");
    cuda::check(cudaHostRegister(host_.get(), sizeof(Page), cudaHostRegisterPortable),
                "page-locking of memory for sums over ranks");
    void* data = nullptr;
    cuda::check(cudaMalloc(&data, sizeof(Page)), "device memory for sums over ranks");
    device_ = static_cast<double*>(data);
  }
  ~Exchange() {
    (void)cudaFree(device_);
    (void)cudaHostUnregister(host_.get());
    (void)cudaStreamDestroy(stream_);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  [[nodiscard]] double* device() const { return device_; }
  void send(std::span<const double> values) {
    std::memcpy(host_->values, values.data(), values.size_bytes());
    cuda::check(cudaMemcpyAsync(device_, host_->values, values.size_bytes(), cudaMemcpyDefault, stream_),
                "copy of sums to the device");
  }
  void receive(size_t count) {
    cuda::check(cudaMemcpyAsync(host_->values, device_, count * sizeof(double), cudaMemcpyDefault, stream_),
                "copy of sums from the device");
  }
  void take(std::span<double> values) const {
    std::memcpy(values.data(), host_->values, values.size_bytes());
  }

 private:
  struct alignas(4096) Page {
    double values[kElems];
  };
  std::unique_ptr<Page> host_;
  cudaStream_t stream_ = nullptr;
  double* device_ = nullptr;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(int rank, int world_size, const NcclId& id) : rank_(rank), world_size_(world_size) {
    HEADRACE_CHECK(world_size > 0 && rank >= 0 && rank < world_size, "a rank lies in its group");
    static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
    ncclUniqueId unique;
    std::memcpy(&unique, id.bytes.data(), sizeof(unique));
    check_nccl(ncclCommInitRank(&comm_, world_size, unique, rank), "ncclCommInitRank");
  }
  ~NcclCommunicator() override {
    if (comm_) (void)ncclCommDestroy(comm_);
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world_size() const override { return world_size_; }

  void all_gather(Stream& stream, const void* shard, size_t shard_bytes, void* full) override {
    if (shard_bytes == 0) return;
    check_group();
    check_place(shard, full, shard_bytes);
    check_nccl(ncclAllGather(shard, full, shard_bytes, ncclUint8, comm_, stream_of(stream)), "ncclAllGather");
  }

  void reduce_scatter(Stream& stream, const float* full, size_t elems, float* shard) override {
    HEADRACE_CHECK(elems % size_t(world_size_) == 0, "shards are equal");
    if (elems == 0) return;
    check_group();
    const size_t shard_elems = elems / size_t(world_size_);
    check_place(shard, full, shard_elems * sizeof(float));
    check_nccl(ncclReduceScatter(full, shard, shard_elems, ncclFloat32, ncclSum, comm_, stream_of(stream)),
               "ncclReduceScatter");
  }

  void all_reduce(std::span<double> values) override {
    for (; !values.empty(); values = values.subspan(std::min(values.size(), Exchange::kElems)))
      all_reduce_some(values.first(std::min(values.size(), Exchange::kElems)));
  }

  void barrier() override {
    double one = 1;
    all_reduce_some({&one, 1});
  }

  [[noreturn]] void abort(const char* reason) override {
    if (comm_) (void)ncclCommAbort(std::exchange(comm_, nullptr));
    throw Error(reason);
  }

 private:
  void all_reduce_some(std::span<double> values) {
    check_group();
    exchange_.send(values);
    check_nccl(ncclAllReduce(exchange_.device(), exchange_.device(), values.size(), ncclFloat64, ncclSum,
                             comm_, exchange_.stream()),
               "ncclAllReduce");
    exchange_.receive(values.size());
    wait_for_exchange();
    exchange_.take(values);
  }

  /// Not a plain cudaStreamSynchronize(): the kernel of a group that has lost a rank never ends.
  void wait_for_exchange() {
    while (true) {
      const cudaError_t state = cudaStreamQuery(exchange_.stream());
      if (state == cudaSuccess) return;
      if (state != cudaErrorNotReady) cuda::check(state, "wait for a sum over ranks");
      check_group();
      std::this_thread::yield();
    }
  }

  /// Throws what NCCL met since the last look, after which only aborting ends its kernels.
  /// In place is exactly in place: NCCL allows no other overlap.
  void check_place(const void* shard, const void* full, size_t shard_bytes) const {
    const auto* const begin = static_cast<const std::byte*>(full);
    const auto* const part = static_cast<const std::byte*>(shard);
    const bool outside = std::less_equal<>()(part + shard_bytes, begin) ||
                         std::less_equal<>()(begin + size_t(world_size_) * shard_bytes, part);
    HEADRACE_CHECK(outside || part == begin + size_t(rank_) * shard_bytes,
                   "a shard lies outside the full buffer or at its rank's place in it");
  }

  void check_group() {
    if (!comm_) throw DeviceError("NCCL: the group was aborted");
    ncclResult_t state = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    if (state == ncclSuccess || state == ncclInProgress) return;
    (void)ncclCommAbort(std::exchange(comm_, nullptr));
    check_nccl(state, "a collective of the group");
  }

  int rank_, world_size_;
  Exchange exchange_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

NcclId make_nccl_id() {
  ncclUniqueId unique;
  check_nccl(ncclGetUniqueId(&unique), "ncclGetUniqueId");
  NcclId id{};
  std::memcpy(id.bytes.data(), &unique, sizeof(unique));
  return id;
}

std::unique_ptr<Communicator> make_nccl_communicator(int rank, int world_size, const NcclId& id) {
  return std::make_unique<NcclCommunicator>(rank, world_size, id);
}

}  // namespace headrace
