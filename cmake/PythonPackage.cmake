# What `pip install .` builds: the operators, the encodings and model files, in a folder `sape2/lib`.
# pip brings CMake and Ninja; the two libraries below come from the system, or as sources from the net.
find_package(Threads REQUIRED)
include(Sape2Torch)
include(FetchContent)

# sape2_found_or_fetched(NAME PACKAGE HASH URL…): find_package(NAME), or the sources of a release.
function(sape2_found_or_fetched name package hash)
  find_package(${name} QUIET)
  if(${name}_FOUND)
    message(STATUS "${name}: ${${name}_DIR}")
    return()
  endif()
  message(STATUS "${name}: not installed, its sources are fetched")
  set(file "${PROJECT_BINARY_DIR}/${name}.tar.gz")
  foreach(url ${ARGN})
    set(found "")
    if(EXISTS "${file}")
      file(SHA256 "${file}" found)
    endif()
    if(NOT found STREQUAL hash)
      file(DOWNLOAD "${url}" "${file}" STATUS status INACTIVITY_TIMEOUT 30)
      file(SHA256 "${file}" found)
    endif()
  endforeach()
  if(NOT found STREQUAL hash)
    message(FATAL_ERROR "The library ${name} is neither installed nor could its sources be downloaded (${status}). "
                        "Install it and run pip again (Debian, Ubuntu: apt-get install ${package}).")
  endif()
  FetchContent_Declare(${name} URL "${file}" DOWNLOAD_EXTRACT_TIMESTAMP ON)
  FetchContent_MakeAvailable(${name})
endfunction()

set(BUILD_SHARED_LIBS OFF CACHE INTERNAL "")
set(BUILD_TESTING OFF CACHE INTERNAL "")
set(HWY_ENABLE_CONTRIB OFF CACHE INTERNAL "")
set(HWY_ENABLE_EXAMPLES OFF CACHE INTERNAL "")
set(HWY_ENABLE_INSTALL OFF CACHE INTERNAL "")
sape2_found_or_fetched(
  hwy libhwy-dev 566fc77315878473d9a6bd815f7de78c73734acdcb745c3dde8579560ac5440e
  https://github.com/google/highway/archive/refs/tags/1.0.3.tar.gz)
if(NOT TARGET hwy::hwy)
  add_library(hwy::hwy ALIAS hwy)
endif()
sape2_found_or_fetched(
  nlohmann_json nlohmann-json3-dev d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273
  https://github.com/nlohmann/json/archive/refs/tags/v3.11.2.tar.gz)

foreach(layer base kernels ops nn io onnx python)
  add_subdirectory(src/${layer})
endforeach()

# What the package checks when it is imported.
set(SAPE2_PYTHON_CUDA_KERNELS False)
if(TARGET sape2_kernels_cuda)
  set(SAPE2_PYTHON_CUDA_KERNELS True)
endif()
configure_file("${PROJECT_SOURCE_DIR}/python/sape2/_build.py.in" "${PROJECT_BINARY_DIR}/_build.py" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/_build.py" DESTINATION sape2 COMPONENT python)
