# One CMake library per folder of src/, one test program per folder that has tests.

add_library(longheads_options INTERFACE)
target_include_directories(longheads_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_compile_options(longheads_options INTERFACE -Wall -Wextra -Wshadow -Werror)
if(LONGHEADS_SANITIZE)
  target_compile_options(longheads_options INTERFACE
    -fsanitize=${LONGHEADS_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(longheads_options INTERFACE -fsanitize=${LONGHEADS_SANITIZE})
endif()

# Code that no token waits for, for the sake of the time it takes to compile. GCC 12 at -O1 takes `string + string` for a
# write out of bounds or onto itself (its bugs 105329, 105651); at -O3, where the rest is compiled, it does not.
# COMPUTES: for code that would run for longer without any than it takes to compile it with a little.
function(longheads_optimise_little target)
  cmake_parse_arguments(ARG "COMPUTES" "" "" ${ARGN})
  if(ARG_COMPUTES)
    target_compile_options(${target} PRIVATE -O1)
  else()
    target_compile_options(${target} PRIVATE $<IF:$<CONFIG:Release>,-O1,-O0>)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
  endif()
endfunction()

# For sources whose headers and templates are nearly all of what they take to compile: six at a time take little longer than
# one. What they keep to themselves then has to have names of its own. CMake's CMAKE_DISABLE_PRECOMPILE_HEADERS shows what
# relies on headers that are compiled once without including them.
function(longheads_compile_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
endfunction()

# What most libraries include, compiled once for those with COMMON_HEADERS.
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/common_headers.cc CONTENT "")
add_library(longheads_common_headers OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/common_headers.cc)
target_link_libraries(longheads_common_headers PRIVATE longheads_options fmt::fmt tl::expected)
set(longheads_common_headers_list <fmt/format.h> <tl/expected.hpp>
    <algorithm> <atomic> <filesystem> <functional> <memory> <mutex> <optional> <span> <string> <vector>)
target_precompile_headers(longheads_common_headers PRIVATE ${longheads_common_headers_list})

# longheads_library(base SOURCES a.cc b.cc DEPENDS tensor fmt::fmt). COLD: longheads_optimise_little. TOGETHER:
# longheads_compile_together. FUZZED: fuzzers that `make test` runs see which of its branches they reach.
function(longheads_library name)
  cmake_parse_arguments(ARG "COLD;COMMON_HEADERS;FUZZED;TOGETHER" "" "SOURCES;DEPENDS" ${ARGN})
  if(ARG_SOURCES)
    add_library(longheads_${name} STATIC ${ARG_SOURCES})
    target_link_libraries(longheads_${name} PUBLIC longheads_options ${ARG_DEPENDS})
    if(ARG_COLD)
      longheads_optimise_little(longheads_${name})
    endif()
    if(ARG_COMMON_HEADERS AND ARG_FUZZED AND LONGHEADS_FUZZ)  # clang takes no headers that were not compiled for fuzzers
      target_precompile_headers(longheads_${name} PRIVATE ${longheads_common_headers_list})
    elseif(ARG_COMMON_HEADERS)
      target_precompile_headers(longheads_${name} REUSE_FROM longheads_common_headers)
    endif()
    if(ARG_TOGETHER)
      longheads_compile_together(longheads_${name})
    endif()
    if(ARG_FUZZED AND LONGHEADS_FUZZ)
      target_compile_options(longheads_${name} PRIVATE -fsanitize=fuzzer-no-link)
    endif()
  else()
    add_library(longheads_${name} INTERFACE)
    target_link_libraries(longheads_${name} INTERFACE longheads_options ${ARG_DEPENDS})
  endif()
endfunction()

# Goes before the name of every test: one ctest runs all builds, and finds a test's fixtures by their names.
set(longheads_test_prefix "")
if(LONGHEADS_SANITIZE STREQUAL thread)
  set(longheads_test_prefix "threads.")
elseif(LONGHEADS_SANITIZE)
  set(longheads_test_prefix "sanitized.")
endif()

# What most tests include, compiled once for all of them; a second time for those that compute, where these are optimised
# and others not.
function(longheads_test_headers name)
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/test_headers.cc)
  target_link_libraries(${name} PRIVATE longheads_options fmt::fmt GTest::gtest nlohmann_json::nlohmann_json)
  longheads_optimise_little(${name} ${ARGN})
  target_precompile_headers(${name} PRIVATE ${longheads_test_headers_list})
endfunction()
set(longheads_test_headers_list <gtest/gtest.h> <nlohmann/json.hpp> <fmt/format.h>
    <algorithm> <functional> <map> <memory> <random> <span> <string> <vector>)
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/test_headers.cc CONTENT "")
longheads_test_headers(longheads_test_headers)
longheads_test_headers(longheads_computing_test_headers COMPUTES)

# What is built and run under the thread sanitizer: at fixed addresses where that is allowed, since GCC 12's does not
# follow all that kernels may choose.
if(LONGHEADS_SANITIZE STREQUAL thread)
  add_custom_target(threaded_tests)
  execute_process(COMMAND setarch -R true RESULT_VARIABLE fixed ERROR_QUIET)
  if(fixed EQUAL 0)
    set(CMAKE_CROSSCOMPILING_EMULATOR setarch -R)  # runs the tests, and lists them
  endif()
endif()

# longheads_test(base SOURCES a_test.cc THREADED b_test.cc DEPENDS longheads_base): tests named <folder>.<suite>.<case>.
# THREADED are the sources whose tests work on several threads: a build under the thread sanitizer has these alone (of
# their tests what passes THREADED_FILTER, gtest's) and labels them threads. SANITIZED programs are built and
# run under sanitizers alone: no number there depends on how they are optimised. COMPUTES: as longheads_optimise_little says.
# HEADERS: what most of its sources include beside what most tests do.
# LABELS default-model is for tests that run the default model; under sanitizers they would take many minutes and reach no
# code that the tiny models do not, so they are left out.
function(longheads_test name)
  cmake_parse_arguments(ARG "SANITIZED;COMPUTES" "TIMEOUT;LABELS;THREADED_FILTER" "SOURCES;THREADED;DEPENDS;HEADERS" ${ARGN})
  if(ARG_SANITIZED AND NOT LONGHEADS_SANITIZE)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(LONGHEADS_SANITIZE AND ARG_LABELS STREQUAL default-model)
    return()
  endif()
  set(filter "*")
  if(LONGHEADS_SANITIZE STREQUAL thread)
    if(NOT ARG_THREADED)
      return()
    endif()
    set(ARG_SOURCES "")
    set(ARG_LABELS threads)
    set(environment ENVIRONMENT "TSAN_OPTIONS=history_size=7 second_deadlock_stack=1")
    if(ARG_THREADED_FILTER)
      set(filter ${ARG_THREADED_FILTER})
    endif()
    add_dependencies(threaded_tests ${name}_test)
  endif()
  add_executable(${name}_test ${ARG_SOURCES} ${ARG_THREADED})
  target_link_libraries(${name}_test PRIVATE longheads_options ${ARG_DEPENDS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name}_test PRIVATE LONGHEADS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set(headers longheads_test_headers)
  set(computes "")
  if(ARG_COMPUTES AND NOT CMAKE_BUILD_TYPE STREQUAL Release)
    set(headers longheads_computing_test_headers)
    set(computes COMPUTES)
  endif()
  longheads_optimise_little(${name}_test ${computes})
  if(ARG_HEADERS)
    target_precompile_headers(${name}_test PRIVATE ${longheads_test_headers_list} ${ARG_HEADERS})
  else()
    target_precompile_headers(${name}_test REUSE_FROM ${headers})
  endif()
  # Parameters without their values, which gtest prints as bytes: names are the same in every build.
  gtest_discover_tests(${name}_test TEST_PREFIX ${longheads_test_prefix}${name}. NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
    TEST_FILTER ${filter} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" ${environment})
endfunction()

# longheads_fuzzer(gguf SOURCES gguf_fuzzer.cc DEPENDS longheads_formats): only with LONGHEADS_FUZZ and clang
function(longheads_fuzzer name)
  if(NOT LONGHEADS_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name}_fuzzer ${ARG_SOURCES})
  target_link_libraries(${name}_fuzzer PRIVATE longheads_options ${ARG_DEPENDS})
  target_link_options(${name}_fuzzer PRIVATE -fsanitize=fuzzer)
endfunction()

include(GoogleTest)
