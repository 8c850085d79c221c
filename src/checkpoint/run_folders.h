// SPDX-License-Identifier: Apache-2.0
// The folders below a checkpoint directory: step-NNNNNNNNNN for saved runs, .tmp-LABEL-PID-RANDOM for those
// being written or removed. A temporary folder is locked (flock) by the process that writes it, so that only
// those of dead processes are cleaned away. Knows nothing of what is inside the folders.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file.h"

namespace headrace::saved {

/// Like mkdir -p, durably.
void make_folders(const std::string& dir);

std::string step_folder_name(uint64_t step);
/// The step of a folder's name, when it is one of ours.
std::optional<uint64_t> step_of(const std::string& name);

struct StepFolder {
  uint64_t step;
  std::string path;
};
/// Newest first, complete or not; empty when `dir` does not exist. Throws IoError.
std::vector<StepFolder> step_folders(const std::string& dir);

/// A folder DIR/.tmp-..., removed with its content at the end unless it was published.
class TempFolder {
 public:
  /// Makes `dir` too when it does not exist.
  TempFolder(const std::string& dir, const std::string& label);
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  void sync();
  /// Renames to `target` and syncs the directory. False, with nothing changed, when a folder with content
  /// stands there.
  [[nodiscard]] bool publish(const std::string& target);
  /// Takes the place of the folder at `target`, which is removed. False when it went away meanwhile.
  [[nodiscard]] bool replace(const std::string& target);

 private:
  std::string dir_, path_;
  std::optional<File> folder_;
};

/// Renames first: a kill in between leaves a temporary folder and no half saved run.
void remove_step_folder(const std::string& dir, const StepFolder& folder);
/// Moves every step folder of `dir` into a new folder DIR/earlier-N; its path, or nothing when there was
/// none.
std::optional<std::string> set_aside(const std::string& dir);
/// DIR/earlier-N, the latest last.
std::vector<std::string> earlier_folders(const std::string& dir);
/// Whether `name` is one that this program gives to temporary folders.
bool is_temp_name(std::string_view name);
/// Only those of such a name; a user's own .tmp-something is not touched.
void remove_dead_temp_folders(const std::string& dir);

}  // namespace headrace::saved
