// SPDX-License-Identifier: Apache-2.0
// manifest.json: what a saved run consists of. It is written last and guards all other files; its own
// checksum stands beside it in manifest.crc32c. Knows JSON; does not touch the units' files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/saved_run.h"

namespace headrace::saved {

constexpr const char* kManifestFile = "manifest.json";
constexpr const char* kManifestCrcFile = "manifest.crc32c";
constexpr const char* kConfigFile = "config.toml";

struct SavedSegment {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset;  ///< elements
};

struct SavedUnit {
  std::string name, file;
  int64_t elems;
  uint64_t bytes;  ///< of the file
  uint32_t table_crc;
  std::vector<SavedSegment> segments;
};

struct Manifest {
  adam::Format format;
  RunState state;
  uint64_t config_bytes;
  uint32_t config_crc;
  std::vector<SavedUnit> units;
};

/// Writes manifest.json and manifest.crc32c, synced.
void write_manifest(const std::string& folder, const Manifest& manifest);
/// Throws CorruptData when it is missing, damaged, of another version or contradicts itself.
Manifest read_manifest(const std::string& folder);
/// The content of manifest.crc32c, equal for equal saved runs; empty when there is none.
std::string manifest_identity(const std::string& folder);

}  // namespace headrace::saved
