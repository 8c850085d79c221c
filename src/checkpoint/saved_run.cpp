// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/saved_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "checkpoint/crc32c.h"
#include "checkpoint/manifest.h"
#include "checkpoint/run_folders.h"
#include "checkpoint/unit_file.h"
#include "headrace/error.h"

namespace headrace {

using namespace saved;

class SavedRun::Impl {
 public:
  explicit Impl(const std::string& folder_in);
  [[nodiscard]] const UnitFileReader& unit(const std::string& name, int64_t first, int64_t elems) const;

  std::string folder;
  Manifest manifest;
  std::string config;
  std::vector<UnitFileReader> files;  ///< as manifest.units; open, so that removal by another does no harm
};

namespace {

/// Retention and resuming go by the name; one that does not tell the step would make them lose a run.
void check_name(const std::string& folder, uint64_t step) {
  const std::filesystem::path path = std::filesystem::path(folder + "/").lexically_normal().parent_path();
  const auto named = step_of(path.filename());
  if (!named || *named == step) return;
  throw CorruptData(folder, 0,
                    fmt::format("the folder has the name of step {}, but its manifest is of step {}; "
                                "rename it to {}",
                                *named, step, step_folder_name(step)));
}

}  // namespace

SavedRun::Impl::Impl(const std::string& folder_in) : folder(folder_in), manifest(read_manifest(folder)) {
  check_name(folder, manifest.state.attempted_steps);
  const std::string config_path = folder + "/" + kConfigFile;
  config = read_file(config_path);
  if (config.size() != manifest.config_bytes || crc32c(config) != manifest.config_crc) {
    throw CorruptData(config_path, 0, "not the text that the manifest names");
  }
  files.reserve(manifest.units.size());
  for (const SavedUnit& unit : manifest.units) {
    files.emplace_back(folder + "/" + unit.file, manifest.format, unit.elems, unit.table_crc);
  }
}

const UnitFileReader& SavedRun::Impl::unit(const std::string& name, int64_t first, int64_t elems) const {
  const auto at = std::find_if(manifest.units.begin(), manifest.units.end(),
                               [&](const SavedUnit& unit) { return unit.name == name; });
  if (at == manifest.units.end()) {
    throw ConfigError("model", fmt::format("unit {} is not in the saved run {}", name, folder));
  }
  if (first < 0 || elems < 0 || first > at->elems - elems) {
    throw ConfigError(
        "model", fmt::format("unit {} has {} elements in the saved run {}; {} from {} were asked for", name,
                             at->elems, folder, elems, first));
  }
  return files[size_t(at - manifest.units.begin())];
}

SavedRun::SavedRun(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SavedRun::SavedRun(SavedRun&&) noexcept = default;
SavedRun::~SavedRun() = default;

SavedRun SavedRun::open(const std::string& folder) {
  return SavedRun(std::make_unique<Impl>(folder));
}

std::optional<SavedRun> SavedRun::newest(const std::string& dir,
                                         const std::function<void(const std::string&)>& warn) {
  std::vector<std::string> candidates;
  if (is_saved_run(dir)) candidates.push_back(dir);
  for (StepFolder& folder : step_folders(dir)) candidates.push_back(std::move(folder.path));
  for (const std::string& folder : candidates) {
    try {
      return open(folder);
    } catch (const Error& error) {
      if (warn) warn(fmt::format("saved run {} is skipped: {}", folder, error.what()));
    }
  }
  return std::nullopt;
}

const std::string& SavedRun::folder() const {
  return impl_->folder;
}
const RunState& SavedRun::state() const {
  return impl_->manifest.state;
}
const adam::Format& SavedRun::format() const {
  return impl_->manifest.format;
}
std::string SavedRun::config_toml() const {
  return impl_->config;
}

namespace {

/// What differs between a saved unit and a declared one, in words; empty when nothing does.
std::string difference(const SavedUnit& saved, const UnitSpec& spec) {
  const size_t both = std::min(saved.segments.size(), spec.segments.size());
  for (size_t i = 0; i < both; ++i) {
    const SavedSegment& a = saved.segments[i];
    const Segment& b = spec.segments[i];
    if (a.name != b.name)
      return fmt::format("tensor {} is {} in the saved run and {} here", i, a.name, b.name);
    if (a.shape != b.shape) {
      return fmt::format("{} is [{}] in the saved run and [{}] here", a.name, fmt::join(a.shape, ", "),
                         fmt::join(b.shape, ", "));
    }
  }
  if (saved.segments.size() > both) return saved.segments[both].name + " is only in the saved run";
  if (spec.segments.size() > both) return spec.segments[both].name + " is not in the saved run";
  return {};
}

void check_format(const std::string& folder, const adam::Format& saved, const adam::Format& here) {
  const auto compare = [&](const char* key, const char* saved_name, const char* name) {
    if (std::string_view(saved_name) != name)
      throw ConfigError(key, fmt::format("saved run {} is {}, this run is {}", folder, saved_name, name));
  };
  const auto precision_name = [](const adam::Format& format) {
    return dtype_name(format.weights == adam::WeightFormat::fp32 ? DType::f32 : DType::bf16);
  };
  compare("train.precision", precision_name(saved), precision_name(here));
  compare("optimizer.rule", adam::kRuleNames[size_t(saved.rule)], adam::kRuleNames[size_t(here.rule)]);
  compare("optimizer.moments", adam::kMomentNames[size_t(saved.moments)],
          adam::kMomentNames[size_t(here.moments)]);
}

}  // namespace

void SavedRun::check_matches(std::span<const UnitSpec> units, const adam::Format& format) const {
  const Manifest& manifest = impl_->manifest;
  check_format(impl_->folder, manifest.format, format);
  const auto fail = [&](const std::string& unit, const std::string& what) {
    throw ConfigError(
        "model", fmt::format("saved run {} is of another model: unit {}: {}", impl_->folder, unit, what));
  };
  for (const UnitSpec& spec : units) {
    const auto at = std::find_if(manifest.units.begin(), manifest.units.end(),
                                 [&](const SavedUnit& unit) { return unit.name == spec.name; });
    if (at == manifest.units.end()) fail(spec.name, "not in the saved run");
    if (const std::string what = difference(*at, spec); !what.empty()) fail(spec.name, what);
  }
  for (const SavedUnit& unit : manifest.units) {
    const bool known =
        std::any_of(units.begin(), units.end(), [&](const UnitSpec& spec) { return spec.name == unit.name; });
    if (!known) fail(unit.name, "only in the saved run");
  }
}

void SavedRun::read_tile(const std::string& unit, const StateTile& tile) const {
  impl_->unit(unit, tile.first, tile.elems).read(tile);
}

void SavedRun::read_weights(const std::string& unit, int64_t first, int64_t elems, std::byte* weights) const {
  impl_->unit(unit, first, elems).read_plane(0, first, elems, weights);
}

bool is_saved_run(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder + "/" + kManifestFile, ignored);
}

std::vector<std::string> folders_set_aside(const std::string& dir) {
  return saved::earlier_folders(dir);
}

std::optional<std::string> set_aside_saved_runs(const std::string& dir) {
  return saved::set_aside(dir);
}

void retain_newest(const std::string& dir, unsigned keep) {
  remove_dead_temp_folders(dir);
  if (keep == 0) return;
  unsigned complete = 0;
  for (const StepFolder& folder : step_folders(dir)) {
    if (complete == keep) {
      remove_step_folder(dir, folder);
      continue;
    }
    try {
      SavedRun::open(folder.path);
      ++complete;
    } catch (const Error&) {
      // Damaged ones do not count: they must not push a good one out.
    }
  }
}

}  // namespace headrace
