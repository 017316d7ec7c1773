# What we build on. The first group is needed; the components of the second are optional: without
# their libraries everything else builds, and `sape2 info` names the Debian package that is missing.
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(fmt REQUIRED)
find_package(hwy REQUIRED)
find_package(ZLIB REQUIRED)
option(SAPE2_CUDA "Require a LibTorch with CUDA" OFF)
if(NOT SAPE2_RUNTIME_ONLY)
  find_package(CLI11 REQUIRED)
  find_package(LibArchive REQUIRED)
  find_package(OpenSSL REQUIRED COMPONENTS Crypto)
  find_package(OpenMP)
  include(Sape2Torch)
  include(Distributed)
endif()
if(SAPE2_CUDA AND NOT TARGET torch_cuda)
  message(FATAL_ERROR "SAPE2_CUDA is on, but the LibTorch in ${TORCH_INSTALL_PREFIX} has no CUDA; "
                      "give the path of one that has with -DCMAKE_PREFIX_PATH=…")
endif()

find_package(PkgConfig REQUIRED)

# sape2_component(NAME MODULE…): a component exists when pkg-config knows all its modules.
function(sape2_component name)
  string(TOUPPER ${name} upper)
  pkg_check_modules(SAPE2_${upper} QUIET IMPORTED_TARGET ${ARGN})
  if(SAPE2_${upper}_FOUND)
    set(found 1)
  else()
    set(found 0)
  endif()
  set(SAPE2_HAVE_${upper} ${found} PARENT_SCOPE)
  message(STATUS "component ${name} (${ARGN}): ${found}")
endfunction()

sape2_component(drawing cairo)
sape2_component(download libcurl)
sape2_component(images libpng libjpeg)
sape2_component(server cpp-httplib)

# The page without a server is compiled to WebAssembly, which no sanitizer of ours looks into.
find_program(SAPE2_EMXX em++)
if(SAPE2_EMXX AND NOT SAPE2_SANITIZE)
  set(SAPE2_HAVE_EXPLORER 1)
else()
  set(SAPE2_HAVE_EXPLORER 0)
endif()
message(STATUS "component explorer (em++): ${SAPE2_HAVE_EXPLORER}")

configure_file("${PROJECT_SOURCE_DIR}/cmake/components.h.in"
               "${PROJECT_BINARY_DIR}/include/sape2/components.h" @ONLY)
