# SPDX-License-Identifier: Apache-2.0
# headrace_module(NAME SOURCES ... [PUBLIC ...] [PRIVATE ...]): one static library and one alias per module.
function(headrace_module name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(headrace_${name} STATIC ${arg_SOURCES})
  add_library(headrace::${name} ALIAS headrace_${name})
  set_target_properties(headrace_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(headrace_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_include_directories(headrace_${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_compile_features(headrace_${name} PUBLIC cxx_std_20)
  target_link_libraries(headrace_${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE} $<BUILD_INTERFACE:headrace_flags>)
endfunction()

# headrace_test(NAME SOURCES ... LIBS ... [LABELS ...] [PREFIX ...] [NEEDS_GPU]): one test binary per module; each TEST is
# one ctest entry, which PREFIX tells from those of another binary of the same sources. With NEEDS_GPU the whole program
# is one entry (making a CUDA context takes longer than most tests), skipped where no GPU is visible.
function(headrace_test name)
  cmake_parse_arguments(arg "NEEDS_GPU" "TIMEOUT;PREFIX" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(${name} PRIVATE HEADRACE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/fixtures")
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gtest_main GTest::gmock headrace_flags)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(arg_NEEDS_GPU)
    add_test(NAME Gpu.${name} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(Gpu.${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "gpu;${arg_LABELS}"
      SKIP_REGULAR_EXPRESSION "no GPU is visible;no GPU that this build has kernels for" ENVIRONMENT "OMP_WAIT_POLICY=passive")
    return()
  endif()
  gtest_discover_tests(${name} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 TEST_PREFIX "${arg_PREFIX}" PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}"
    ENVIRONMENT "OMP_WAIT_POLICY=passive")
endfunction()
