// SPDX-License-Identifier: Apache-2.0
// The repository's own files, for the tests that check its rules. Build folders and hidden folders are left
// out.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headrace::repo {

struct SourceFile {
  std::string path;  ///< relative to the repository's root
  std::vector<std::string> lines;
};

/// Files below the repository's root whose extension is one of `extensions`, sorted by path.
std::vector<SourceFile> source_files(const std::vector<std::string>& extensions);

/// The path in an #include "..." line, empty when the line is none.
std::string quoted_include(const std::string& line);

}  // namespace headrace::repo
