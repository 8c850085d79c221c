// SPDX-License-Identifier: Apache-2.0
// Runs a model the way a trainer does, with plain memory in the engine's place: every unit gathered, every
// stage's input kept, gradients accumulated. The blocks that a stage works in are filled with NaN before
// every call and fenced, so that stale contents or a byte too many fail the test.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "headrace/error.h"
#include "immediate_stream.h"
#include "model/model.h"
#include "reference_model.h"

namespace headrace::test {

/// Memory as the engine hands it out: 4 KiB aligned, NaN in either format, with a fence behind its end.
class FencedBlock {
 public:
  static constexpr size_t kFenceBytes = 4096;
  explicit FencedBlock(size_t bytes) : bytes_(bytes) {
    const size_t padded = (bytes + 4095) / 4096 * 4096;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, padded + kFenceBytes)));
    bytes_ = padded;
    poison();
    std::memset(data_.get() + bytes_, 0x5a, kFenceBytes);
  }
  ~FencedBlock() {
    for (size_t i = 0; data_ && i < kFenceBytes; ++i)
      if (data_.get()[bytes_ + i] != std::byte(0x5a)) {
        ADD_FAILURE() << "written " << i << " bytes beyond a block of " << bytes_;
        break;
      }
  }
  FencedBlock(FencedBlock&&) = default;
  FencedBlock& operator=(FencedBlock&&) = default;
  void poison() { std::memset(data_.get(), 0xff, bytes_); }
  void zero() { std::memset(data_.get(), 0, bytes_); }
  [[nodiscard]] std::byte* data() const { return data_.get(); }
  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t bytes_;
};

struct Rows {
  int64_t batch, seq;
  std::vector<int32_t> tokens, labels;
  [[nodiscard]] TokenBatch view() const { return {batch, seq, tokens.data(), labels.data()}; }
};

/// Random tokens and labels, about one label in eight ignored, the first never.
inline Rows random_rows(int64_t batch, int64_t seq, int64_t vocab, unsigned seed) {
  std::mt19937 random(seed);
  const auto token = [&] { return int32_t(random() % unsigned(vocab)); };
  Rows rows{batch, seq, {}, {}};
  for (int64_t i = 0; i < batch * seq; ++i) {
    rows.tokens.push_back(token());
    rows.labels.push_back(i > 0 && random() % 8 == 0 ? -100 : token());
  }
  return rows;
}

/// fp32 values: matrices normal(0, 0.2), norms around 1, biases around 0, so that whatever is left out shows.
inline Parameters random_parameters(std::span<const UnitSpec> units, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Parameters parameters;
  for (const UnitSpec& unit : units) {
    parameters.emplace_back();
    for (const Segment& segment : unit.segments) {
      size_t elems = 1;
      for (const int64_t extent : segment.shape) elems *= size_t(extent);
      const bool matrix = segment.shape.size() == 2;
      const float centre = segment.name.ends_with("norm.weight") ? 1.0f : 0.0f;
      Vector& values = parameters.back().emplace_back(elems);
      for (double& value : values) value = centre + (matrix ? 0.2f : 0.1f) * normal(random);
    }
  }
  return parameters;
}

struct TrainMode {
  bool recompute = false;  ///< only x is kept from forward to backward
  bool alias_dx = false;   ///< dx takes the memory of dy
};

class Harness {
 public:
  Harness(const ModelConfig& config, DType dtype)
      : model_(make_model(config, dtype, DeviceKind::host)), dtype_(dtype) {
    for (const UnitSpec& unit : model_->units()) layouts_.push_back(layout_of(unit));
    for (const UnitLayout& layout : layouts_) {
      weights_.emplace_back(size_t(layout.elems) * dtype_bytes(dtype));
      gradients_.emplace_back(size_t(layout.elems) * sizeof(float));
      gradients_.back().zero();
    }
  }

  Model& model() { return *model_; }
  const UnitLayout& layout(size_t unit) const { return layouts_[unit]; }
  const float* gradient(size_t unit, size_t segment) const {
    return gradients_[unit].as<float>() + layouts_[unit].segments[segment].offset;
  }
  /// The whole accumulator of a unit, gaps included.
  std::vector<float> gradient_copy(size_t unit) const {
    const float* data = gradients_[unit].as<float>();
    return {data, data + layouts_[unit].elems};
  }
  void zero_gradients() {
    for (FencedBlock& block : gradients_) block.zero();
  }

  void load_segment(size_t unit, size_t segment, std::span<const float> values) {
    const size_t offset = size_t(layouts_[unit].segments[segment].offset);
    ASSERT_EQ(values.size(), size_t(layouts_[unit].segments[segment].elems));
    for (size_t i = 0; i < values.size(); ++i)
      if (dtype_ == DType::f32)
        weights_[unit].as<float>()[offset + i] = values[i];
      else
        weights_[unit].as<bf16>()[offset + i] = to_bf16(values[i]);
  }
  void load(const Parameters& parameters) {
    for (size_t u = 0; u < parameters.size(); ++u)
      for (size_t s = 0; s < parameters[u].size(); ++s) {
        const std::vector<float> values(parameters[u][s].begin(), parameters[u][s].end());
        load_segment(u, s, values);
      }
  }

  /// Forward, loss and backward; gradients are added to. Returns the loss sum.
  double train(const Rows& rows, float grad_scale, TrainMode mode = {}) {
    const TokenBatch batch = rows.view();
    prepare(batch);
    forward(batch, mode);
    const double sum = loss(batch, grad_scale, true);
    backward(batch, mode);
    return sum;
  }
  /// Forward and loss only.
  double evaluate(const Rows& rows) {
    const TokenBatch batch = rows.view();
    prepare(batch);
    forward(batch, {.recompute = true});
    return loss(batch, 0.0f, false);
  }
  /// After evaluate() or train(): logits of all rows.
  std::vector<float> logits(const Rows& rows) {
    FencedBlock out(size_t(rows.view().rows() * model_->config().vocab) * sizeof(float));
    scratch_->poison();
    model_->logits(stream_, views(model_->stages() - 1), rows.view().rows(), activations_.back().data(),
                   out.as<float>(), {nullptr, scratch_->data()});
    return {out.as<float>(), out.as<float>() + rows.view().rows() * model_->config().vocab};
  }
  /// After train(): the gradient of the embedding's output.
  std::vector<float> dx() const {
    const size_t elems = activation_bytes_ / dtype_bytes(dtype_);
    std::vector<float> values(elems);
    for (size_t i = 0; i < elems; ++i)
      values[i] = dtype_ == DType::f32 ? dx_->as<float>()[i] : to_float(dx_->as<bf16>()[i]);
    return values;
  }

 private:
  void prepare(const TokenBatch& batch) {
    activation_bytes_ = model_->activation_bytes(batch.batch, batch.seq);
    activations_.clear();
    saved_.clear();
    for (int stage = 0; stage < model_->stages() - 1; ++stage) {
      activations_.emplace_back(activation_bytes_);
      saved_.emplace_back(model_->saved_bytes(batch.batch, batch.seq));
    }
    scratch_ = std::make_unique<FencedBlock>(model_->scratch_bytes(batch.batch, batch.seq));
    dy_ = std::make_unique<FencedBlock>(activation_bytes_);
    dx_ = std::make_unique<FencedBlock>(activation_bytes_);
  }
  std::span<const WeightView> views(int stage) {
    views_.clear();
    for (const UnitId unit : model_->units_of(stage))
      views_.push_back({weights_[size_t(unit)].data(), &layouts_[size_t(unit)], dtype_});
    return views_;
  }
  std::span<const GradientView> gradient_views(int stage) {
    gradient_views_.clear();
    for (const UnitId unit : model_->units_of(stage))
      gradient_views_.push_back({gradients_[size_t(unit)].as<float>(), &layouts_[size_t(unit)]});
    return gradient_views_;
  }
  StageMemory memory(int stage) {
    scratch_->poison();
    return {saved_[size_t(stage)].data(), scratch_->data()};
  }
  void forward(const TokenBatch& batch, TrainMode mode) {
    for (int stage = 0; stage < model_->stages() - 1; ++stage) {
      const void* x = stage == 0 ? nullptr : activations_[size_t(stage) - 1].data();
      model_->forward(stream_, stage, views(stage), batch, x, activations_[size_t(stage)].data(),
                      memory(stage));
      if (mode.recompute) saved_[size_t(stage)].poison();
    }
  }
  double loss(const TokenBatch& batch, float grad_scale, bool training) {
    double sum = 0;
    const int stage = model_->stages() - 1;
    scratch_->poison();
    model_->loss(stream_, views(stage), training ? gradient_views(stage) : std::span<const GradientView>(),
                 batch, activations_.back().data(), grad_scale, &sum, training ? dx_->data() : nullptr,
                 {nullptr, scratch_->data()});
    return sum;
  }
  void backward(const TokenBatch& batch, TrainMode mode) {
    for (int stage = model_->stages() - 2; stage > 0; --stage) {
      if (!mode.alias_dx) std::swap(dx_, dy_);
      const void* dy = mode.alias_dx ? dx_->data() : dy_->data();
      model_->backward(stream_, stage, views(stage), gradient_views(stage), batch,
                       activations_[size_t(stage) - 1].data(), dy, dx_->data(), mode.recompute,
                       memory(stage));
    }
    model_->backward(stream_, 0, {}, gradient_views(0), batch, nullptr, dx_->data(), nullptr, false,
                     memory(0));
  }

  std::unique_ptr<Model> model_;
  DType dtype_;
  ImmediateStream stream_;
  std::vector<UnitLayout> layouts_;
  std::vector<FencedBlock> weights_, gradients_, activations_, saved_;
  std::unique_ptr<FencedBlock> scratch_, dy_, dx_;
  size_t activation_bytes_ = 0;
  std::vector<WeightView> views_;
  std::vector<GradientView> gradient_views_;
};

}  // namespace headrace::test
