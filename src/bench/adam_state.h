// SPDX-License-Identifier: Apache-2.0
// The arrays of one variant over a stretch of memory: what the update and the mixes run on, whole or as a
// list of tensors. Filled with numbers a training could have, never zeros or denormals, whose speed would be
// another one. Not thread safe.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/adam_variants.h"

namespace headrace::bench {

class AdamState {
 public:
  /// Bytes for `params` elements, a multiple of adam::kTileElems.
  static size_t bytes(const AdamVariant& variant, size_t params);

  /// Lays the arrays out from `memory` on, one after another, and fills them on the threads of `workers`.
  AdamState(const AdamVariant& variant, size_t params, std::byte* memory, adam::Workers& workers);

  [[nodiscard]] const AdamVariant& variant() const { return *variant_; }
  /// All elements as one span.
  [[nodiscard]] const adam::Span& flat() const { return span_; }
  /// The same elements as tensors of `tensor_elems`, each array of a tensor behind that of the tensor before
  /// it and aligned to 64 bytes, as an allocator would place it. `scalars` must outlive the list.
  [[nodiscard]] std::vector<adam::ScaledSpan> tensors(size_t tensor_elems,
                                                      const adam::StepScalars& scalars) const;

 private:
  const AdamVariant* variant_;
  adam::Span span_;
};

}  // namespace headrace::bench
