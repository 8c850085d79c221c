# SPDX-License-Identifier: Apache-2.0
# cmake -DBUILD=... -DSOURCE=... -DWORK=... -DCXX=... -P run.cmake: installs a build into a folder of its own,
# builds the outside project against it twice, with find_package and with pkg-config, and runs both.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\nended with ${result}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G Ninja -DCMAKE_BUILD_TYPE=Release
  -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_CXX_COMPILER=${CXX})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/one_step ${WORK}/nvme)

file(GLOB_RECURSE pc_file ${WORK}/prefix/*/headrace.pc)
get_filename_component(pc_dir ${pc_file} DIRECTORY)
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${pc_dir} pkg-config --cflags --libs headrace
  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
run(${CXX} -std=c++20 -O1 ${SOURCE}/one_step.cpp -o ${WORK}/one_step_pc ${flags})
run(${WORK}/one_step_pc ${WORK}/nvme)

file(REMOVE_RECURSE ${WORK})
