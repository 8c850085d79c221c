// SPDX-License-Identifier: Apache-2.0
#include "source_tree.h"

#include <algorithm>
#include <fstream>

namespace headrace::repo {
namespace {

namespace fs = std::filesystem;

bool is_skipped_folder(const std::string& name) {
  return name.starts_with(".") || name.starts_with("build") || name == "shared" || name == "runs";
}

std::vector<std::string> read_lines(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace

std::vector<SourceFile> source_files(const std::vector<std::string>& extensions) {
  const fs::path root = HEADRACE_SOURCE_DIR;
  std::vector<SourceFile> files;
  for (auto entry = fs::recursive_directory_iterator(root); entry != fs::recursive_directory_iterator();
       ++entry) {
    const fs::path& path = entry->path();
    if (entry->is_directory()) {
      if (is_skipped_folder(path.filename().string())) entry.disable_recursion_pending();
      continue;
    }
    const bool named = path.filename() == "CMakeLists.txt" && std::ranges::count(extensions, ".cmake") > 0;
    if (!named && std::ranges::count(extensions, path.extension().string()) == 0) continue;
    files.push_back({path.lexically_relative(root).generic_string(), read_lines(path)});
  }
  std::ranges::sort(files, {}, &SourceFile::path);
  return files;
}

std::string quoted_include(const std::string& line) {
  constexpr std::string_view kStart = "#include \"";
  if (!line.starts_with(kStart)) return {};
  const size_t end = line.find('"', kStart.size());
  return end == std::string::npos ? std::string() : line.substr(kStart.size(), end - kStart.size());
}

}  // namespace headrace::repo
