// SPDX-License-Identifier: Apache-2.0
// cuBLASLt is loaded when it is first called, and not before.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

// From kernels/cuda/cublaslt_library.cpp; the library's enumeration is an int, 15 is "not supported"
// (NVIDIA's cuBLAS documentation, cublasStatus_t).
extern "C" const char* cublasLtGetStatusName(int status);

namespace headrace::kernels {
namespace {

bool is_loaded() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("libcublasLt") != std::string::npos) return true;
  return false;
}

TEST(CublasLtLibrary, IsLoadedAtTheFirstCall) {
  EXPECT_FALSE(is_loaded());
  EXPECT_STREQ(cublasLtGetStatusName(15), "CUBLAS_STATUS_NOT_SUPPORTED");
  EXPECT_TRUE(is_loaded());
}

}  // namespace
}  // namespace headrace::kernels
