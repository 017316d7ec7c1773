# What sums over processes need beside LibTorch: the headers of Gloo (libgloo-dev) and of NCCL, and a LibTorch that has
# the libraries. Sets SAPE2_HAVE_GLOO and SAPE2_HAVE_NCCL to 1 or 0, and SAPE2_NCCL_INCLUDE.
include(CheckCXXSourceCompiles)
# By their files, not as targets: those of PyTorch's wheels stand on others that a trial's project does not have.
set(CMAKE_REQUIRED_LIBRARIES "")
foreach(library torch_cpu c10)
  get_target_property(file ${library} LOCATION)
  list(APPEND CMAKE_REQUIRED_LIBRARIES "${file}")
endforeach()
set(CMAKE_REQUIRED_INCLUDES ${TORCH_INCLUDE_DIRS})
set(CMAKE_REQUIRED_DEFINITIONS ${TORCH_CXX_FLAGS})
set(CMAKE_REQUIRED_LINK_OPTIONS -Wl,--unresolved-symbols=ignore-in-shared-libs)
set(CMAKE_REQUIRED_FLAGS "-std=c++17")
if(TORCH_VERSION VERSION_GREATER_EQUAL 2.10)
  set(CMAKE_REQUIRED_FLAGS "-std=c++20")
endif()
check_cxx_source_compiles(
  "#define USE_C10D_GLOO
   #include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
   int main() { return c10d::ProcessGroupGloo::createDeviceForHostname(\"127.0.0.1\") == nullptr; }"
  SAPE2_GLOO_COMPILES)

if(TARGET torch_cuda)
  # PyTorch's wheels bring it as a wheel of its own, beside torch.
  find_path(SAPE2_NCCL_INCLUDE nccl.h
            HINTS "${TORCH_INSTALL_PREFIX}/../nvidia/nccl/include" "${CUDA_HOME}/include" /usr/local/cuda/include)
  if(SAPE2_NCCL_INCLUDE)
    get_target_property(file torch_cuda LOCATION)
    list(PREPEND CMAKE_REQUIRED_LIBRARIES "${file}")
    get_target_property(cuda_include torch::cudart INTERFACE_INCLUDE_DIRECTORIES)
    list(APPEND CMAKE_REQUIRED_INCLUDES "${SAPE2_NCCL_INCLUDE}" ${cuda_include})
    check_cxx_source_compiles(
      "#define USE_C10D_NCCL
       #include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
       int main() { return c10d::ProcessGroupNCCL::Options::create() == nullptr; }"
      SAPE2_NCCL_COMPILES)
  endif()
endif()
foreach(name GLOO NCCL)
  set(SAPE2_HAVE_${name} 0)
  if(SAPE2_${name}_COMPILES)
    set(SAPE2_HAVE_${name} 1)
  endif()
  message(STATUS "sums over processes with ${name}: ${SAPE2_HAVE_${name}}")
endforeach()
foreach(setting LIBRARIES FLAGS INCLUDES DEFINITIONS LINK_OPTIONS)
  unset(CMAKE_REQUIRED_${setting})
endforeach()
