// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/crc32c.h"
#include "checkpoint/file.h"
#include "checkpoint/unit_file.h"
#include "headrace/error.h"

namespace headrace::saved {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "headrace saved run";
/// 2 where the optimizer is not AdamW with fp32 moments, which readers of 1 know nothing about.
constexpr uint64_t kVersion = 1, kVersionWithOptimizer = 2;

Json state_to_json(const RunState& state) {
  return {{"step", state.step},
          {"attempted_steps", state.attempted_steps},
          {"skipped_steps", state.skipped_steps},
          {"skipped_in_a_row", state.skipped_in_a_row},
          {"tokens", state.tokens},
          {"data_epoch", state.data_epoch},
          {"data_window", state.data_window},
          {"model", state.model},
          {"data_fingerprint", state.data_fingerprint},
          {"seed", state.seed}};
}

RunState state_from_json(const Json& json) {
  RunState state;
  json.at("step").get_to(state.step);
  json.at("attempted_steps").get_to(state.attempted_steps);
  json.at("skipped_steps").get_to(state.skipped_steps);
  json.at("skipped_in_a_row").get_to(state.skipped_in_a_row);
  json.at("tokens").get_to(state.tokens);
  json.at("data_epoch").get_to(state.data_epoch);
  json.at("data_window").get_to(state.data_window);
  json.at("model").get_to(state.model);
  json.at("data_fingerprint").get_to(state.data_fingerprint);
  json.at("seed").get_to(state.seed);
  return state;
}

Json unit_to_json(const SavedUnit& unit) {
  Json segments = Json::array();
  for (const SavedSegment& segment : unit.segments) {
    segments.push_back({{"name", segment.name}, {"shape", segment.shape}, {"offset", segment.offset}});
  }
  return {{"name", unit.name},
          {"file", unit.file},
          {"elems", unit.elems},
          {"bytes", unit.bytes},
          {"table_crc32c", crc_text(unit.table_crc)},
          {"segments", std::move(segments)}};
}

uint32_t crc_from_json(const Json& json) {
  const auto& text = json.get_ref<const std::string&>();
  size_t used = 0;
  const unsigned long value = std::stoul(text, &used, 16);
  if (used != 8 || text.size() != 8) throw std::invalid_argument("checksum \"" + text + "\"");
  return uint32_t(value);
}

SavedUnit unit_from_json(const Json& json) {
  SavedUnit unit{.name = json.at("name"),
                 .file = json.at("file"),
                 .elems = json.at("elems"),
                 .bytes = json.at("bytes"),
                 .table_crc = crc_from_json(json.at("table_crc32c")),
                 .segments = {}};
  for (const Json& segment : json.at("segments")) {
    unit.segments.push_back(
        {.name = segment.at("name"), .shape = segment.at("shape"), .offset = segment.at("offset")});
  }
  return unit;
}

DType precision_of(const adam::Format& format) {
  return format.weights == adam::WeightFormat::fp32 ? DType::f32 : DType::bf16;
}

bool is_plain(const adam::Format& format) {
  return format == state_format(precision_of(format));
}

/// The index of the name that is given.
template <size_t kNames>
size_t index_from_json(const Json& json, const char* what, const char* const (&names)[kNames]) {
  const auto& name = json.get_ref<const std::string&>();
  for (size_t i = 0; i < kNames; ++i)
    if (name == names[i]) return i;
  throw std::invalid_argument(fmt::format("{} \"{}\"", what, name));
}

adam::Format format_from_json(const Json& json, uint64_t version) {
  constexpr const char* kPrecisions[] = {dtype_name(DType::f32), dtype_name(DType::bf16)};
  const auto precision = DType(index_from_json(json.at("precision"), "precision", kPrecisions));
  if (version == kVersion) return state_format(precision);
  const Json& optimizer = json.at("optimizer");
  const auto rule = adam::Rule(index_from_json(optimizer.at("rule"), "rule", adam::kRuleNames));
  const auto moments =
      adam::MomentFormat(index_from_json(optimizer.at("moments"), "moments", adam::kMomentNames));
  const adam::Format format = state_format(precision, rule, moments);
  if (!adam::offered(format)) throw std::invalid_argument("optimizer that does not exist");
  return format;
}

void check_segments(const SavedUnit& unit) {
  for (const SavedSegment& segment : unit.segments) {
    int64_t elems = 1;
    for (const int64_t size : segment.shape) {
      if (size < 0 || (size > 0 && elems > kMaxUnitElems / size)) {
        throw std::invalid_argument("shape of " + segment.name);
      }
      elems *= size;
    }
    if (segment.offset < 0 || elems > unit.elems || segment.offset > unit.elems - elems) {
      throw std::invalid_argument("place of " + segment.name);
    }
  }
}

void check_units(const Manifest& manifest) {
  std::set<std::string> names;
  for (const SavedUnit& unit : manifest.units) {
    if (!names.insert(unit.name).second) throw std::invalid_argument("two units " + unit.name);
    if (unit.file.empty() || unit.file.front() == '.' || unit.file.find('/') != std::string::npos) {
      throw std::invalid_argument("file name \"" + unit.file + "\"");
    }
    if (unit.elems < 0 || unit.elems > kMaxUnitElems) throw std::invalid_argument("size of " + unit.name);
    if (unit.bytes != UnitFileLayout(manifest.format, unit.elems).file_bytes) {
      throw std::invalid_argument("bytes of " + unit.name);
    }
    check_segments(unit);
  }
}

Manifest manifest_from_json(const Json& json) {
  if (json.at("format") != kFormat) throw std::invalid_argument("not a " + std::string(kFormat));
  const uint64_t version = json.at("version");
  if (version != kVersion && version != kVersionWithOptimizer) {
    throw std::invalid_argument(fmt::format("format version {}, this program reads {} and {}", version,
                                            kVersion, kVersionWithOptimizer));
  }
  if (json.at("tile_elems") != kTileElems) throw std::invalid_argument("unknown tile_elems");
  Manifest manifest{.format = format_from_json(json, version),
                    .state = state_from_json(json.at("state")),
                    .config_bytes = json.at("config").at("bytes"),
                    .config_crc = crc_from_json(json.at("config").at("crc32c")),
                    .units = {}};
  for (const Json& unit : json.at("units")) manifest.units.push_back(unit_from_json(unit));
  check_units(manifest);
  return manifest;
}

/// A saved run without this file is one whose writing was cut short.
std::string read_or_incomplete(const std::string& folder, const char* name) {
  const std::string path = folder + "/" + name;
  try {
    return read_file(path);
  } catch (const IoError& error) {
    if (error.error_code != ENOENT) throw;
    throw CorruptData(folder, 0, fmt::format("not a complete saved run: {} is missing", name));
  }
}

}  // namespace

void write_manifest(const std::string& folder, const Manifest& manifest) {
  Json units = Json::array();
  for (const SavedUnit& unit : manifest.units) units.push_back(unit_to_json(unit));
  const adam::Format& format = manifest.format;
  Json json = {
      {"format", kFormat},
      {"version", is_plain(format) ? kVersion : kVersionWithOptimizer},
      {"precision", dtype_name(precision_of(format))},
      {"tile_elems", kTileElems},
      {"state", state_to_json(manifest.state)},
      {"config",
       {{"file", kConfigFile}, {"bytes", manifest.config_bytes}, {"crc32c", crc_text(manifest.config_crc)}}},
      {"units", std::move(units)}};
  if (!is_plain(format)) {
    json["optimizer"] = {{"rule", adam::kRuleNames[size_t(format.rule)]},
                         {"moments", adam::kMomentNames[size_t(format.moments)]}};
  }
  const std::string text = json.dump(1) + "\n";
  write_file(folder + "/" + kManifestFile, text);
  write_file(folder + "/" + kManifestCrcFile, crc_text(crc32c(text)) + "\n");
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifestFile;
  const std::string text = read_or_incomplete(folder, kManifestFile);
  const std::string expected = read_or_incomplete(folder, kManifestCrcFile);
  if (const std::string found = crc_text(crc32c(text)); found + "\n" != expected) {
    throw CorruptData(path, 0, fmt::format("checksum {} is not that of {}", found, kManifestCrcFile));
  }
  try {
    return manifest_from_json(Json::parse(text));
  } catch (const std::logic_error& error) {  // std::invalid_argument and out_of_range of stoul included
    throw CorruptData(path, 0, fmt::format("unusable manifest: {}", error.what()));
  } catch (const Json::exception& error) {
    throw CorruptData(path, 0, fmt::format("unusable manifest: {}", error.what()));
  }
}

std::string manifest_identity(const std::string& folder) {
  try {
    return read_file(folder + "/" + kManifestCrcFile);
  } catch (const IoError&) {
    return {};
  }
}

}  // namespace headrace::saved
