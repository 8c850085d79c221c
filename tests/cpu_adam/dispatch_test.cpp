// SPDX-License-Identifier: Apache-2.0
// The choice of the instruction set. Death tests re-execute this program, so each sees its own HEADRACE_ISA
// although it is read only once in a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "cpu_adam/isa_kernels.h"
#include "headrace/error.h"
#include "tests/cpu_adam/adam_state.h"

namespace headrace::adam::test {
namespace {

TEST(ChooseIsa, TakesTheNamedSet) {
  for (const Isa isa : supported_isas()) EXPECT_EQ(choose_isa(isa_name(isa)), isa);
}

TEST(ChooseIsa, TakesTheWidestSetWhenNoneIsNamed) {
  EXPECT_EQ(choose_isa(nullptr), supported_isas().back());
  EXPECT_EQ(choose_isa(""), supported_isas().back());
}

TEST(ChooseIsa, RefusesAnUnknownNameAndSaysWhatIsPossible) {
  for (const char* name : {"sse9", "AVX2", "scalar "}) {
    try {
      choose_isa(name);
      ADD_FAILURE() << name;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key, "HEADRACE_ISA");
      EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr(name), ::testing::HasSubstr("scalar")));
    }
  }
}

TEST(ChooseIsa, RefusesASetTheMachineLacks) {
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    if (supported(isa)) continue;
    EXPECT_THROW(choose_isa(isa_name(isa)), ConfigError);
  }
}

[[noreturn]] void report_isa(const char* wanted) {
  setenv("HEADRACE_ISA", wanted, 1);
  try {
    const Isa first = active_isa();
    setenv("HEADRACE_ISA", "changed later", 1);
    std::fprintf(stderr, "first %s, then %s", isa_name(first), isa_name(active_isa()));
  } catch (const ConfigError& error) {
    std::fprintf(stderr, "refused: %s", error.what());
  }
  std::exit(0);
}

class ActiveIsaDeathTest : public ::testing::Test {
 protected:
  ActiveIsaDeathTest() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(ActiveIsaDeathTest, FollowsTheEnvironmentReadOnce) {
  for (const Isa isa : supported_isas()) {
    const std::string name = isa_name(isa);
    EXPECT_EXIT(report_isa(name.c_str()), ::testing::ExitedWithCode(0), "first " + name + ", then " + name);
  }
}

TEST_F(ActiveIsaDeathTest, RefusesAWrongEnvironment) {
  EXPECT_EXIT(report_isa("mmx"), ::testing::ExitedWithCode(0), "refused: HEADRACE_ISA: \"mmx\"");
}

[[noreturn]] void make_workers_with_wrong_isa() {
  setenv("HEADRACE_ISA", "mmx", 1);
  try {
    const Workers workers(1);
  } catch (const ConfigError&) {
    std::exit(3);
  }
  std::exit(0);
}

TEST_F(ActiveIsaDeathTest, IsCheckedWhenWorkersAreMade) {
  EXPECT_EXIT(make_workers_with_wrong_isa(), ::testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace headrace::adam::test
