// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "tests/emulation/device_state.h"

struct ncclComm {};

using namespace headrace::emulation;

namespace {

thread_local int t_group_depth = 0;
thread_local std::vector<std::function<ncclResult_t()>> t_group;

size_t type_bytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
  }
  return 0;
}

/// With one rank a gather, a sum and a share of a sum are all the rank's own values.
ncclResult_t collective(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                        cudaStream_t stream) {
  const size_t bytes = count * type_bytes(type);
  if (!comm || (count > 0 && bytes == 0)) return ncclInvalidArgument;
  if (bytes > 0 && (!is_device_memory(send, bytes) || !is_device_memory(receive, bytes)))
    return ncclInvalidArgument;
  const auto begin = [=] {
    const cudaError_t error =
        send == receive ? standing_error() : cudaMemcpyAsync(receive, send, bytes, cudaMemcpyDefault, stream);
    return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
  };
  if (t_group_depth == 0) return begin();
  t_group.emplace_back(begin);
  return ncclSuccess;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  std::strcpy(id->internal, "one emulated rank");
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId, int rank) {
  *comm = nullptr;
  if (standing_error() != cudaSuccess) return ncclUnhandledCudaError;
  if (ranks != 1 || rank != 0) return ncclInvalidArgument;
  *comm = new ncclComm;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return comm ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return ncclCommDestroy(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (!comm) return ncclInvalidArgument;
  *error = standing_error() == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(send, receive, count, type, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return collective(send, receive, count, type, comm, stream);
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(send, receive, count, type, comm, stream);
}

ncclResult_t ncclGroupStart() {
  ++t_group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (t_group_depth == 0) return ncclInvalidUsage;
  if (--t_group_depth > 0) return ncclSuccess;
  ncclResult_t first = ncclSuccess;
  for (const auto& begin : std::exchange(t_group, {}))
    if (const ncclResult_t result = begin(); first == ncclSuccess) first = result;
  return first;
}
