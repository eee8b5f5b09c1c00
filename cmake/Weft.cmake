# weft_library(name SOURCES ... [DEPENDS ...] [PRIVATE_DEPENDS ...])  -> target weft_<name>, alias weft::<name>
# weft_program(name SOURCES ... [DEPENDS ...])                         -> executable <name> in bin/
# weft_install_programs(name ...)                                      -> installs programs that are for users
# weft_test(name SOURCES ... [DEPENDS ...] [LABELS ...])               -> one GoogleTest binary, one ctest entry per folder
# weft_system_test(name COMMAND ... [LABELS ...] [TIMEOUT s] [CONFIGURATIONS c])
#                                                                      -> a script that exercises built programs; with a
#                                                                         configuration it runs under ctest -C c alone

include(GNUInstallDirs)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

add_library(weft_flags INTERFACE)
target_compile_features(weft_flags INTERFACE cxx_std_20)
target_include_directories(weft_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_compile_options(weft_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers
                       $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>  # ccache asks for it where a header is precompiled
                       $<$<BOOL:${WEFT_WERROR}>:-Werror>)
if(WEFT_SANITIZE)  # a target with the property WEFT_NOT_SANITIZED stays as it is
  set(sanitized $<NOT:$<BOOL:$<TARGET_PROPERTY:WEFT_NOT_SANITIZED>>>)
  target_compile_options(weft_flags INTERFACE $<${sanitized}:-fsanitize=${WEFT_SANITIZE}> -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(weft_flags INTERFACE $<${sanitized}:-fsanitize=${WEFT_SANITIZE}>)
  if(WEFT_SANITIZE MATCHES thread)
    # Where this macro is set protobuf's headers give map fields another layout than the packaged library has.
    # libstdc++ is told by its own macro.
    target_compile_options(weft_flags INTERFACE -U__SANITIZE_THREAD__ -D_GLIBCXX_TSAN=1)
  endif()
endif()
find_program(WEFT_MOLD mold)
if(WEFT_MOLD)
  target_link_options(weft_flags INTERFACE -fuse-ld=mold)
endif()
find_program(WEFT_CCACHE ccache)
if(WEFT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths below the source tree are hashed as relative ones, so that a clone in another folder finds what this one compiled;
  # without the sloppiness ccache refuses every source file with a precompiled header, which is all tests.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${WEFT_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

function(weft_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  if(ARG_SOURCES)
    add_library(weft_${name} STATIC ${ARG_SOURCES})
    set_target_properties(weft_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(weft_${name} PUBLIC weft_flags ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS})
  else()
    add_library(weft_${name} INTERFACE)
    target_link_libraries(weft_${name} INTERFACE weft_flags ${ARG_DEPENDS})
  endif()
  add_library(weft::${name} ALIAS weft_${name})
endfunction()

function(weft_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE weft_flags ${ARG_DEPENDS})
endfunction()

# Programs of users, which bench/ and tests/ have none of. A build folder may hold some of them only: what was not built
# is not installed, and no error.
function(weft_install_programs)
  install(TARGETS ${ARGN} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
endfunction()

add_custom_target(weft_unit_tests)  # all that ctest -L unit needs: what the sanitizers build

function(weft_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT WEFT_BUILD_TESTS)
    return()
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE weft_flags ${ARG_DEPENDS} GTest::gmock_main)
  if(NOT name STREQUAL common_test)
    target_precompile_headers(${name} REUSE_FROM common_test)
  else()
    target_precompile_headers(${name} PRIVATE <gmock/gmock.h> <gtest/gtest.h> <string> <vector> <memory>)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  if("unit" IN_LIST ARG_LABELS)
    add_dependencies(weft_unit_tests ${name})
  endif()
endfunction()

function(weft_system_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "COMMAND;LABELS;CONFIGURATIONS" ${ARGN})
  if(NOT WEFT_BUILD_TESTS)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  add_test(NAME ${name} CONFIGURATIONS ${ARG_CONFIGURATIONS} COMMAND ${ARG_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "WEFT_BIN=${CMAKE_BINARY_DIR}/bin;WEFT_LIB=${CMAKE_BINARY_DIR}/lib;WEFT_SOURCE=${PROJECT_SOURCE_DIR}")
endfunction()
