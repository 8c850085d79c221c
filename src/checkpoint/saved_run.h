// SPDX-License-Identifier: Apache-2.0
// Saved runs: everything a run needs to continue bit-identically, written so that a kill at any instant
// leaves either the previous saved run or the new one. DIR/step-0000000120/ holds manifest.json, config.toml
// and one file per unit; it is made under a temporary name, every file is synced, and only then renamed.
// Format: docs/saved_run_format.md. The format does not depend on where state lived, nor on the number of
// ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/engine.h"

namespace headrace {

/// The run's own state beside the units'.
struct RunState {
  uint64_t step = 0;             ///< optimizer steps taken (Adam's t)
  uint64_t attempted_steps = 0;  ///< skipped ones included; names the folder
  uint64_t skipped_steps = 0, skipped_in_a_row = 0;
  uint64_t tokens = 0;  ///< counted targets so far
  uint64_t data_epoch = 0, data_window = 0;
  std::string model;  ///< the shape and what else must be equal to continue, as one line
  std::string data_fingerprint;
  uint64_t seed = 0;
};

class SavedRunWriter {
 public:
  /// Starts DIR/.tmp-step-...; removes nothing. Throws IoError.
  SavedRunWriter(const std::string& dir, const RunState& state, const adam::Format& format,
                 std::string config_toml);
  /// Without finish() the temporary folder is removed.
  ~SavedRunWriter();
  void begin_unit(const UnitSpec& spec, const UnitLayout& layout);
  /// Tiles of the current unit in ascending order.
  void add_tile(const StateTile& tile);
  void end_unit();
  /// Syncs, renames, syncs the directory; returns the folder. When another process saved the same step
  /// meanwhile, that one stands and this call still succeeds. `before_publish` is called when all is written
  /// and synced but not yet renamed.
  std::string finish(const std::function<void()>& before_publish = {});

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

class SavedRun {
 public:
  /// The newest complete saved run below `dir` (or `dir` itself when it is one); incomplete or damaged ones
  /// are skipped, each told to `warn`. nullopt when there is none.
  static std::optional<SavedRun> newest(const std::string& dir,
                                        const std::function<void(const std::string&)>& warn);
  /// Throws CorruptData or IoError when `folder` is not a complete saved run, or has the name of another
  /// step.
  static SavedRun open(const std::string& folder);
  SavedRun(SavedRun&&) noexcept;
  ~SavedRun();

  [[nodiscard]] const std::string& folder() const;
  [[nodiscard]] const RunState& state() const;
  [[nodiscard]] const adam::Format& format() const;
  [[nodiscard]] std::string config_toml() const;
  /// Throws ConfigError when units, shapes, precision or the optimizer's state differ, naming the first
  /// difference.
  void check_matches(std::span<const UnitSpec> units, const adam::Format& format) const;
  /// Fills a tile of unit `name`; verifies checksums: CorruptData names file and offset.
  void read_tile(const std::string& unit, const StateTile& tile) const;
  /// Weights only (bf16 or fp32 plane), for generation.
  void read_weights(const std::string& unit, int64_t first, int64_t elems, std::byte* weights) const;

 private:
  class Impl;
  explicit SavedRun(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Whether `folder` is one saved run itself, complete or damaged, and not a directory of saved runs.
bool is_saved_run(const std::string& folder);

/// For a training that starts anew in a directory with saved runs of an earlier one: moves them into a new
/// folder DIR/earlier-N and returns its path, so that they are neither lost nor mistaken for the new
/// training's. nullopt when there are none. Throws IoError.
std::optional<std::string> set_aside_saved_runs(const std::string& dir);

/// The folders DIR/earlier-N, the latest last.
std::vector<std::string> folders_set_aside(const std::string& dir);

/// Keeps the `keep` newest by number (0: all); removes older ones and temporary folders of dead
/// processes.
void retain_newest(const std::string& dir, unsigned keep);

}  // namespace headrace
