// SPDX-License-Identifier: Apache-2.0
#include "train/saving.h"

#include <fmt/format.h>
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "headrace/error.h"

namespace headrace {
namespace {

/// Puts fp32 values into a tile's master, whatever its format.
void set_master(const StateTile& tile, int64_t at, std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t element = size_t(at) + i;
    if (tile.arrays.w) {
      tile.arrays.w[element] = values[i];
      continue;
    }
    // 24 bits, where there are no more: the nearest.
    const bool narrow = tile.arrays.lo8 != nullptr;
    const float value =
        narrow ? std::bit_cast<float>((std::bit_cast<uint32_t>(values[i]) + 0x80) & ~0xffu) : values[i];
    const SplitMaster split = split_master(value);
    tile.arrays.hi[element] = split.hi;
    if (narrow)
      tile.arrays.lo8[element] = uint8_t(split.lo >> 8);
    else
      tile.arrays.lo[element] = split.lo;
  }
}

}  // namespace

std::string model_text(const ModelConfig& model) {
  return fmt::format(
      "{}, layers {}, hidden {}, heads {}, kv_heads {}, ffn {}, vocab {}, tied {}, rope_theta {}, norm_eps "
      "{}",
      model.family == Family::gpt2 ? "gpt2" : "llama", model.layers, model.hidden, model.heads,
      model.kv_heads, model.ffn, model.vocab, model.tied, model.rope_theta, model.norm_eps);
}

void check_same_model(const SavedRun& run, const ModelConfig& model) {
  const std::string text = model_text(model);
  if (run.state().model == text) return;
  throw ConfigError(
      "model", fmt::format("the saved run {} is of another model ({} instead of {}); keep the model keys "
                           "that it was trained with",
                           run.folder(), run.state().model, text));
}

void add_units(SavedRunWriter& writer, Engine& engine) {
  for (uint32_t i = 0; i < engine.units().size(); ++i) {
    writer.begin_unit(engine.units()[i], engine.layout(UnitId{i}));
    engine.visit_state(UnitId{i}, StateAccess::read, [&](const StateTile& tile) { writer.add_tile(tile); });
    writer.end_unit();
  }
}

std::string save_run(Engine& engine, const std::string& dir, const RunState& state,
                     const std::string& config_toml) {
  SavedRunWriter writer(dir, state, engine.format(), config_toml);
  add_units(writer, engine);
  return writer.finish();
}

void load_run(Engine& engine, const SavedRun& run) {
  run.check_matches(engine.units(), engine.format());
  for (uint32_t i = 0; i < engine.units().size(); ++i) {
    const std::string& name = engine.units()[i].name;
    engine.visit_state(UnitId{i}, StateAccess::overwrite,
                       [&](const StateTile& tile) { run.read_tile(name, tile); });
  }
}

void initialize_run(Engine& engine, const Model& model, uint64_t seed) {
  std::vector<float> values;
  for (uint32_t i = 0; i < engine.units().size(); ++i) {
    const UnitId unit{i};
    engine.visit_state(unit, StateAccess::overwrite, [&](const StateTile& tile) {
      const auto& segments = engine.layout(unit).segments;
      for (size_t s = 0; s < segments.size(); ++s) {
        const int64_t begin = std::max(tile.first, segments[s].offset);
        const int64_t end = std::min(tile.first + tile.elems, segments[s].offset + segments[s].elems);
        if (begin >= end) continue;
        values.resize(size_t(end - begin));
        // Every element is a function of its place, so any cut gives the same values.
        tbb::parallel_for(tbb::blocked_range<size_t>(0, values.size(), 4096), [&](const auto& part) {
          model.initialize(unit, s, seed, begin - segments[s].offset + int64_t(part.begin()),
                           std::span(values).subspan(part.begin(), part.size()));
        });
        set_master(tile, begin - tile.first, values);
      }
    });
  }
}

}  // namespace headrace
