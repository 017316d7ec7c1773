# Settings every target shares: language, output folders, warnings, sanitizers.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};$ORIGIN")

# ccache sees paths from the build folder and ignores where that folder is, so it knows a file again in another clone.
# What it is told to be sloppy about are precompiled headers, which it otherwise does not cache.
find_program(SAPE2_CCACHE ccache)
if(SAPE2_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=true
                                  CCACHE_SLOPPINESS=pch_defines,time_macros "${SAPE2_CCACHE}")
endif()

# Compile and link options of our own code; never exported to users' projects.
add_library(sape2_build_settings INTERFACE)
target_compile_options(sape2_build_settings INTERFACE -Wall -Wextra -Wshadow -Wno-missing-field-initializers)
# Messages name a source file as the tree does, and a program tells nothing of the machine that built it.
target_compile_options(sape2_build_settings INTERFACE
                       "$<$<COMPILE_LANGUAGE:C,CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>")
if(SAPE2_WARNINGS_AS_ERRORS)
  target_compile_options(sape2_build_settings INTERFACE -Werror)
endif()
if(SAPE2_SANITIZE)
  add_compile_options(-fsanitize=${SAPE2_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # AddressSanitizer stands between the program and dlopen, which then looks for libraries on its own
  # behalf: the older kind of search path holds for it too.
  add_link_options(-fsanitize=${SAPE2_SANITIZE} -Wl,--disable-new-dtags)
  # GCC sees uninitialised values in instrumented standard headers that are none.
  target_compile_options(sape2_build_settings INTERFACE -Wno-maybe-uninitialized)
endif()

configure_file("${PROJECT_SOURCE_DIR}/cmake/version.h.in"
               "${PROJECT_BINARY_DIR}/include/sape2/version.h" @ONLY)

# sape2_batches(TARGET): compiles its files several at once, as long as SAPE2_BATCHES is on. Most of
# a file's time goes into LibTorch's headers, so that this takes a third of the time of a fresh build.
# Fuzz targets replace single files of a library, which then must not come in batches.
function(sape2_batches target)
  if(SAPE2_BATCHES AND NOT SAPE2_FUZZ)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 9)
  endif()
endfunction()

# sape2_small(TARGET): for libraries that do no arithmetic. sape2-predict carries them along, and what it does not use of
# them is left out.
function(sape2_small target)
  target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections $<$<CONFIG:Release>:-Os>)
endfunction()

# sape2_layer(NAME [RUNTIME]): what all library targets of the layers have in common. RUNTIME marks those that the
# runtime without LibTorch is made of: find_package(sape2 COMPONENTS infer) brings them alone.
function(sape2_layer target)
  cmake_parse_arguments(arg "RUNTIME" "" "" ${ARGN})
  if(arg_RUNTIME)
    set(targets sape2-runtime-targets)
  else()
    set(targets sape2-targets)
  endif()
  target_include_directories(
    ${target} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
                     "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>"
                     "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>"
    PRIVATE "${PROJECT_SOURCE_DIR}/src")
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PRIVATE "$<BUILD_INTERFACE:sape2_build_settings>")
  sape2_batches(${target})
  string(REPLACE "sape2_" "" name ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  add_library(sape2::${name} ALIAS ${target})
  install(TARGETS ${target} EXPORT ${targets}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()
