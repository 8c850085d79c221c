// SPDX-License-Identifier: Apache-2.0
// Includes run one way (ARCHITECTURE.md, "Layout"). The table below is that rule: each module with all it may
// include beside itself and include/headrace. A test's own folder, src/<module> and tests may include
// anything.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "source_tree.h"

namespace headrace::repo {
namespace {

using Names = std::set<std::string>;

const std::map<std::string, Names>& may_include() {
  static const Names kParts = {"nvme", "cpu_adam", "kernels", "device"};
  static const Names kProgram = {"model", "data", "checkpoint"};
  static const std::map<std::string, Names> kRule = {
      {"headrace", {}},
      {"base", {}},
      {"nvme", {}},
      {"cpu_adam", {}},
      {"kernels", {}},
      {"device", {"nvme", "cpu_adam", "kernels"}},
      {"comm", kParts},
      {"swap", kParts},
      {"zero", {"nvme", "cpu_adam", "kernels", "device", "comm", "swap"}},
      {"optim", {"nvme", "cpu_adam", "kernels", "device", "comm", "swap", "zero"}},
      {"engine", {"nvme", "cpu_adam", "kernels", "device", "comm", "swap", "zero", "optim"}},
      // From here on the library is used through its door only.
      {"model", {"kernels"}},
      {"data", {}},
      {"checkpoint", {}},
      {"train", kProgram},
      {"bench", {"device"}},
      {"cli", {"model", "data", "checkpoint", "train", "bench"}},
  };
  return kRule;
}

/// Single headers that a module may include across the rule, and why.
const std::set<std::pair<std::string, std::string>>& exceptions() {
  static const std::set<std::pair<std::string, std::string>> kExceptions = {
      {"cli", "nvme/probe.h"},        // doctor asks what the machine can do
      {"cli", "device/cuda_info.h"},  // doctor and --version
  };
  return kExceptions;
}

/// "src/swap/layout.h" -> "swap", "nvme/store.cpp" -> "nvme", "include/headrace/x.h" -> "headrace"; empty for
/// what the rule does not cover, such as the programs in bench/.
std::string module_of(const std::string& path) {
  const std::string first = path.substr(0, path.find('/'));
  if (first == "bench") return {};
  if (may_include().contains(first) && first != "headrace") return first;
  if (first != "src" && first != "include") return {};
  const std::string rest = path.substr(first.size() + 1);
  return rest.substr(0, rest.find('/'));
}

TEST(Layering, IncludesRunOneWay) {
  size_t checked = 0;
  for (const SourceFile& file : source_files({".h", ".cpp", ".cu", ".cuh"})) {
    const std::string module = module_of(file.path);
    if (module.empty()) continue;
    ASSERT_TRUE(may_include().contains(module)) << file.path << ": the rule does not know this module";
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string include = quoted_include(file.lines[i]);
      if (include.find('/') == std::string::npos) continue;
      const std::string target = include.substr(0, include.find('/'));
      if (!may_include().contains(target)) continue;
      ++checked;
      const bool allowed = target == module || target == "headrace" ||
                           may_include().at(module).contains(target) ||
                           exceptions().contains({module, include});
      EXPECT_TRUE(allowed) << file.path << ":" << i + 1 << ": " << module << " must not include " << include;
    }
  }
  EXPECT_GT(checked, 100u);
}

TEST(Layering, ThePublicHeadersIncludeOnlyEachOther) {
  for (const SourceFile& file : source_files({".h"})) {
    if (!file.path.starts_with("include/")) continue;
    for (const std::string& line : file.lines) {
      const std::string include = quoted_include(line);
      EXPECT_TRUE(include.empty() || include.starts_with("headrace/"))
          << file.path << " includes " << include;
    }
  }
}

TEST(Layering, OnlyOneFileNamesOneDnn) {
  for (const SourceFile& file : source_files({".h", ".cpp"})) {
    for (const std::string& line : file.lines) {
      if (!line.starts_with("#include") || line.find("dnnl") == std::string::npos) continue;
      EXPECT_TRUE(file.path.starts_with("kernels/host/") || file.path.starts_with("bench/")) << file.path;
    }
  }
}

TEST(Layering, OnlyTheProductsAndTheirLibraryNameCublas) {
  for (const SourceFile& file : source_files({".h", ".cpp", ".cu"})) {
    for (const std::string& line : file.lines) {
      if (!line.starts_with("#include <cublasLt")) continue;
      EXPECT_TRUE(file.path == "kernels/cuda/cublaslt_objects.h" ||
                  file.path == "kernels/cuda/cublaslt_library.cpp" ||
                  file.path.starts_with("tests/emulation/") || file.path.starts_with("bench/"))
          << file.path;
    }
  }
}

}  // namespace
}  // namespace headrace::repo
