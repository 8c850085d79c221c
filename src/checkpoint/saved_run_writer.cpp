// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "checkpoint/crc32c.h"
#include "checkpoint/manifest.h"
#include "checkpoint/run_folders.h"
#include "checkpoint/saved_run.h"
#include "checkpoint/unit_file.h"
#include "headrace/error.h"

namespace headrace {

using namespace saved;

class SavedRunWriter::Impl {
 public:
  Impl(const std::string& dir, const RunState& state, const adam::Format& format,
       const std::string& config_toml)
      : dir_(dir),
        target_(dir + "/" + step_folder_name(state.attempted_steps)),
        identity_before_(manifest_identity(target_)),
        temp_(dir, step_folder_name(state.attempted_steps)),
        manifest_{.format = format,
                  .state = state,
                  .config_bytes = config_toml.size(),
                  .config_crc = crc32c(config_toml),
                  .units = {}} {
    write_file(temp_.path() + "/" + kConfigFile, config_toml);
  }

  void begin_unit(const UnitSpec& spec, const UnitLayout& layout);
  void add_tile(const StateTile& tile) {
    HEADRACE_CHECK(unit_.has_value(), "add_tile outside begin_unit and end_unit");
    unit_->add(tile);
  }
  void end_unit();
  std::string finish(const std::function<void()>& before_publish);

 private:
  [[nodiscard]] bool another_saved_this_step() const;

  std::string dir_, target_;
  std::string identity_before_;
  TempFolder temp_;
  Manifest manifest_;
  std::optional<UnitFileWriter> unit_;
};

void SavedRunWriter::Impl::begin_unit(const UnitSpec& spec, const UnitLayout& layout) {
  HEADRACE_CHECK(!unit_.has_value(), "begin_unit before end_unit");
  HEADRACE_CHECK(spec.segments.size() == layout.segments.size(), "the layout is of another unit");
  for (const SavedUnit& unit : manifest_.units) {
    HEADRACE_CHECK(unit.name != spec.name, "a unit is saved once");
  }
  const std::string file = fmt::format("unit-{:04}.bin", manifest_.units.size());
  unit_.emplace(temp_.path() + "/" + file, manifest_.format, layout.elems);
  SavedUnit& unit = manifest_.units.emplace_back(SavedUnit{.name = spec.name,
                                                           .file = file,
                                                           .elems = layout.elems,
                                                           .bytes = unit_->file_bytes(),
                                                           .table_crc = 0,
                                                           .segments = {}});
  for (size_t i = 0; i < spec.segments.size(); ++i) {
    unit.segments.push_back({.name = spec.segments[i].name,
                             .shape = spec.segments[i].shape,
                             .offset = layout.segments[i].offset});
  }
}

void SavedRunWriter::Impl::end_unit() {
  HEADRACE_CHECK(unit_.has_value(), "end_unit without begin_unit");
  manifest_.units.back().table_crc = unit_->finish();
  unit_.reset();
}

bool SavedRunWriter::Impl::another_saved_this_step() const {
  const std::string there = manifest_identity(target_);
  // One that stood there before this save began, with other content, is what this save is to replace.
  if (there == identity_before_ && there != manifest_identity(temp_.path())) return false;
  try {
    SavedRun::open(target_);
    return true;
  } catch (const Error&) {  // damaged: ours is whole and takes its place
    return false;
  }
}

std::string SavedRunWriter::Impl::finish(const std::function<void()>& before_publish) {
  HEADRACE_CHECK(!unit_.has_value(), "finish with a unit open");
  write_manifest(temp_.path(), manifest_);
  temp_.sync();
  if (before_publish) before_publish();
  while (!temp_.publish(target_)) {
    if (another_saved_this_step()) {
      // Its files were synced before it got the name; the name itself may not be yet.
      sync_folder(dir_);
      break;
    }
    if (temp_.replace(target_)) break;
  }
  return target_;
}

SavedRunWriter::SavedRunWriter(const std::string& dir, const RunState& state, const adam::Format& format,
                               std::string config_toml)
    : impl_(std::make_unique<Impl>(dir, state, format, config_toml)) {}
SavedRunWriter::~SavedRunWriter() = default;

void SavedRunWriter::begin_unit(const UnitSpec& spec, const UnitLayout& layout) {
  HEADRACE_CHECK(impl_, "the save is finished");
  impl_->begin_unit(spec, layout);
}

void SavedRunWriter::add_tile(const StateTile& tile) {
  HEADRACE_CHECK(impl_, "the save is finished");
  impl_->add_tile(tile);
}

void SavedRunWriter::end_unit() {
  HEADRACE_CHECK(impl_, "the save is finished");
  impl_->end_unit();
}

std::string SavedRunWriter::finish(const std::function<void()>& before_publish) {
  HEADRACE_CHECK(impl_, "the save is finished");
  std::string folder = impl_->finish(before_publish);
  impl_.reset();
  return folder;
}

}  // namespace headrace
