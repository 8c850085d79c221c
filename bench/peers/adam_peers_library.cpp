// SPDX-License-Identifier: Apache-2.0
// The update as a shared library with a C interface, for adam_contenders.py, which loads it with ctypes next
// to the optimizers it is compared with. One call runs a whole step on pointers that the caller owns:
// unscale, update and, where the format has one, the bf16 copy. Tensors of a list are given together, as
// Workers takes them. Not part of what is installed; the structures are mirrored in the script.
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "headrace/adam.h"

namespace headrace::peers {
namespace {

/// A team of threads and the list it hands to it, kept so that a step allocates nothing once it has run.
struct Team {
  explicit Team(int threads) : workers(threads) {}
  adam::Workers workers;
  std::vector<adam::ScaledSpan> spans;
};

thread_local std::string last_error;

}  // namespace

struct PeerTensor {
  uint64_t count;
  void *w, *copy, *hi, *lo, *m, *v;  ///< those that the format has
  const void* grad;
};

struct PeerStep {
  int32_t weights;   ///< WeightFormat
  int32_t moments;   ///< MomentFormat
  int32_t gradient;  ///< DType
  int32_t reserved;
  uint64_t t;  ///< from 1
  double lr, beta1, beta2, eps, weight_decay, grad_scale;
};

extern "C" {

/// Why the last call on this thread failed.
const char* headrace_peers_error() {
  return last_error.c_str();
}

/// The instruction set in use.
const char* headrace_peers_isa() {
  return adam::isa_name(adam::active_isa());
}

/// Null when it fails.
void* headrace_peers_open(int32_t threads) {
  try {
    return std::make_unique<Team>(threads).release();
  } catch (const std::exception& error) {
    last_error = error.what();
    return nullptr;
  }
}

void headrace_peers_close(void* team) {
  std::unique_ptr<Team>(static_cast<Team*>(team));
}

/// The threads that were granted.
int32_t headrace_peers_threads(const void* team) {
  return static_cast<const Team*>(team)->workers.threads();
}

/// One AdamW step on all tensors, in place; 0, or -1 when it fails. Returns when the step is done.
int32_t headrace_peers_update(void* team_pointer, const PeerStep* step, const PeerTensor* tensors,
                              uint64_t tensor_count) {
  try {
    Team& team = *static_cast<Team*>(team_pointer);
    const adam::Format format{.weights = adam::WeightFormat(step->weights),
                              .moments = adam::MomentFormat(step->moments)};
    const adam::Options options{.lr = step->lr,
                                .beta1 = step->beta1,
                                .beta2 = step->beta2,
                                .eps = step->eps,
                                .weight_decay = step->weight_decay};
    const adam::StepScalars scalars = adam::make_scalars(options, step->t, step->grad_scale);
    team.spans.clear();
    uint64_t first = 0;
    for (uint64_t i = 0; i < tensor_count; ++i) {
      const PeerTensor& tensor = tensors[i];
      team.spans.push_back({{.count = tensor.count,
                             .first = first,
                             .w = static_cast<float*>(tensor.w),
                             .copy = static_cast<bf16*>(tensor.copy),
                             .hi = static_cast<bf16*>(tensor.hi),
                             .lo = static_cast<uint16_t*>(tensor.lo),
                             .m = tensor.m,
                             .v = tensor.v,
                             .grad = {tensor.grad, DType(step->gradient)}},
                            &scalars});
      first += tensor.count;
    }
    team.workers.update(format, team.spans);
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
    return -1;
  }
}

}  // extern "C"

}  // namespace headrace::peers
