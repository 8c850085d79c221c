// SPDX-License-Identifier: Apache-2.0
// The Model of both families: an embedding, L equal layers and a head, each stage handed to its part. What
// the families differ in is in Architecture.
#include <fmt/format.h>

#include <algorithm>

#include "headrace/error.h"
#include "kernels/pointwise.h"
#include "model/head.h"
#include "model/layer.h"

namespace headrace {
namespace {

UnitDraft embedding_draft(const Architecture& a) {
  UnitDraft unit{{"embed", {}, a.config.tied}, {}};
  const SegmentInit init{SegmentInit::Kind::normal, kInitStddev};
  const size_t table = unit.add({"wte.weight", {a.config.vocab, a.config.hidden}, false}, init);
  HEADRACE_CHECK(table == kTokenTableSegment, "the tied head looks for it there");
  if (a.learned_positions) unit.add({"wpe.weight", {a.config.max_seq, a.config.hidden}, false}, init);
  return unit;
}
constexpr size_t kPositionTableSegment = 1;

class Transformer final : public Model {
 public:
  Transformer(const Architecture& architecture, DType dtype, DeviceKind device);

  const ModelConfig& config() const override { return architecture_.config; }
  std::span<const UnitSpec> units() const override { return specs_; }
  std::span<const UnitId> units_of(int stage) const override;
  void initialize(UnitId unit, size_t segment, uint64_t seed, int64_t first,
                  std::span<float> out) const override;

  size_t saved_bytes(int64_t batch, int64_t seq) const override;
  size_t scratch_bytes(int64_t batch, int64_t seq) const override;
  size_t activation_bytes(int64_t batch, int64_t seq) const override;

  void forward(Stream&, int stage, StageWeights, const TokenBatch&, const void* x, void* y,
               StageMemory) override;
  void backward(Stream&, int stage, StageWeights, StageGradients, const TokenBatch&, const void* x,
                const void* dy, void* dx, bool recompute, StageMemory) override;
  void loss(Stream&, StageWeights, StageGradients, const TokenBatch&, const void* x, float grad_scale,
            double* loss_sum, void* dx, StageMemory) override;
  void logits(Stream&, StageWeights, int64_t rows, const void* x, float* logits, StageMemory) override;

 private:
  void check_call(StageWeights weights, size_t units, const TokenBatch& batch) const;
  const LayerMemory& layer_memory(const TokenBatch& batch);
  const HeadMemory& head_memory(int64_t rows);
  [[nodiscard]] kernels::Embedding embedding_shape(const TokenBatch& batch) const;
  [[nodiscard]] int last_layer_stage() const { return int(architecture_.config.layers); }
  [[nodiscard]] const UnitDraft& draft_of(UnitId unit) const;

  Architecture architecture_;
  DType dtype_;
  UnitDraft embedding_draft_, layer_draft_, head_draft_;
  Layer layer_;
  Head head_;
  std::vector<UnitSpec> specs_;
  std::vector<UnitId> ids_, head_ids_;
  // Of the last shape: every call of a run has the same one, and the kernels' answers are not free.
  LayerMemory layer_memory_;
  HeadMemory head_memory_;
};

Transformer::Transformer(const Architecture& architecture, DType dtype, DeviceKind device)
    : architecture_(architecture),
      dtype_(dtype),
      embedding_draft_(embedding_draft(architecture)),
      layer_draft_{{"layer", {}}, {}},
      head_draft_{{"head", {}}, {}},
      layer_(architecture, dtype, device, layer_draft_),
      head_(architecture, dtype, device, head_draft_) {
  specs_.push_back(embedding_draft_.spec);
  for (int64_t i = 0; i < architecture.config.layers; ++i) {
    specs_.push_back(layer_draft_.spec);
    specs_.back().name = fmt::format("layer.{}", i);
  }
  specs_.push_back(head_draft_.spec);
  for (size_t i = 0; i < specs_.size(); ++i) ids_.push_back(UnitId(i));
  head_ids_.push_back(ids_.back());
  if (architecture.config.tied) head_ids_.push_back(ids_.front());
}

const UnitDraft& Transformer::draft_of(UnitId unit) const {
  HEADRACE_CHECK(size_t(unit) < specs_.size(), "no such unit");
  if (unit == ids_.front()) return embedding_draft_;
  return unit == ids_.back() ? head_draft_ : layer_draft_;
}

std::span<const UnitId> Transformer::units_of(int stage) const {
  HEADRACE_CHECK(stage >= 0 && stage < stages(), "no such stage");
  if (stage == stages() - 1) return head_ids_;
  return std::span(ids_).subspan(size_t(stage), 1);
}

void Transformer::initialize(UnitId unit, size_t segment, uint64_t seed, int64_t first,
                             std::span<float> out) const {
  const UnitDraft& draft = draft_of(unit);
  HEADRACE_CHECK(segment < draft.init.size(), "no such segment");
  initialize_segment(draft.init[segment], seed, specs_[size_t(unit)].name, draft.spec.segments[segment].name,
                     first, out);
}

size_t Transformer::saved_bytes(int64_t batch, int64_t seq) const {
  return layer_.memory(batch, seq).saved.bytes;
}

size_t Transformer::scratch_bytes(int64_t batch, int64_t seq) const {
  return std::max(layer_.memory(batch, seq).scratch.bytes, head_.memory(batch * seq).bytes);
}

size_t Transformer::activation_bytes(int64_t batch, int64_t seq) const {
  return size_t(batch) * size_t(seq) * size_t(architecture_.config.hidden) * dtype_bytes(dtype_);
}

void Transformer::check_call(StageWeights weights, size_t units, const TokenBatch& batch) const {
  HEADRACE_CHECK(weights.size() == units, "views of the units that the stage names");
  for (const WeightView& view : weights)
    HEADRACE_CHECK(view.dtype == dtype_, "weights in the model's format");
  HEADRACE_CHECK(batch.batch > 0 && batch.seq > 0, "an empty batch");
  HEADRACE_CHECK(batch.seq <= architecture_.config.max_seq, "the sequence is longer than model.max_seq");
}

const LayerMemory& Transformer::layer_memory(const TokenBatch& batch) {
  if (layer_memory_.batch != batch.batch || layer_memory_.seq != batch.seq)
    layer_memory_ = layer_.memory(batch.batch, batch.seq);
  return layer_memory_;
}

const HeadMemory& Transformer::head_memory(int64_t rows) {
  if (head_memory_.rows != rows) head_memory_ = head_.memory(rows);
  return head_memory_;
}

kernels::Embedding Transformer::embedding_shape(const TokenBatch& batch) const {
  return {batch.rows(), batch.seq, architecture_.config.hidden, architecture_.config.vocab, dtype_};
}

void Transformer::forward(Stream& stream, int stage, StageWeights weights, const TokenBatch& batch,
                          const void* x, void* y, StageMemory memory) {
  HEADRACE_CHECK(stage >= 0 && stage <= last_layer_stage(), "the head's stage is loss() or logits()");
  check_call(weights, 1, batch);
  if (stage > 0) return layer_.forward(stream, layer_memory(batch), weights[0], x, y, memory);
  const void* positions =
      architecture_.learned_positions ? weights[0].segment(kPositionTableSegment) : nullptr;
  kernels::embedding_forward(stream, embedding_shape(batch), batch.tokens,
                             weights[0].segment(kTokenTableSegment), positions, y);
}

void Transformer::backward(Stream& stream, int stage, StageWeights weights, StageGradients gradients,
                           const TokenBatch& batch, const void* x, const void* dy, void* dx, bool recompute,
                           StageMemory memory) {
  HEADRACE_CHECK(stage >= 0 && stage <= last_layer_stage(), "the head's backward is in loss()");
  HEADRACE_CHECK(gradients.size() == 1, "the gradient of the stage's unit");
  check_call(weights, stage == 0 ? weights.size() : 1, batch);
  if (stage > 0) {
    layer_.backward(stream, layer_memory(batch), weights[0], gradients[0], x, dy, dx, recompute, memory);
    return;
  }
  float* positions = architecture_.learned_positions ? gradients[0].segment(kPositionTableSegment) : nullptr;
  kernels::embedding_backward(stream, embedding_shape(batch), batch.tokens, dy,
                              gradients[0].segment(kTokenTableSegment), positions);
}

void Transformer::loss(Stream& stream, StageWeights weights, StageGradients gradients,
                       const TokenBatch& batch, const void* x, float grad_scale, double* loss_sum, void* dx,
                       StageMemory memory) {
  check_call(weights, head_ids_.size(), batch);
  HEADRACE_CHECK(gradients.empty() || gradients.size() == weights.size(),
                 "gradients of all units or of none");
  head_.loss(stream, head_memory(batch.rows()), weights, gradients, batch.labels, x, grad_scale, loss_sum, dx,
             memory.scratch);
}

void Transformer::logits(Stream& stream, StageWeights weights, int64_t rows, const void* x, float* logits,
                         StageMemory memory) {
  HEADRACE_CHECK(rows > 0 && weights.size() == head_ids_.size(), "rows and views of the head's units");
  head_.logits(stream, head_memory(rows), weights, x, logits, memory.scratch);
}

}  // namespace

/// What the device's kernels hold of a head at once. gpt2 on the host has no limit: nothing is rotated.
void check_head_dim(const ModelConfig& config, DeviceKind device) {
  constexpr int64_t kMostOnCuda = 256, kMostRotatedOnHost = 1024;
  if (device == DeviceKind::host && config.family == Family::gpt2) return;
  const int64_t most = device == DeviceKind::cuda ? kMostOnCuda : kMostRotatedOnHost;
  const int64_t head_dim = config.hidden / config.heads;
  if (head_dim <= most) return;
  throw ConfigError(
      "model.heads",
      fmt::format("hidden / heads = {} is more than the {} that a head can have on {}; use more heads",
                  head_dim, most, device == DeviceKind::cuda ? "a GPU" : "the host device"));
}

std::unique_ptr<Model> make_model(const ModelConfig& config, DType precision, DeviceKind device) {
  check_head_dim(config, device);
  return std::make_unique<Transformer>(architecture_of(config), precision, device);
}

}  // namespace headrace
