# Finds LibTorch and wraps it as sape2::torch. Used by our own build and by installed packages alike.
# Debian's LibTorch names its folders in TORCH_INCLUDE_DIRS only; PyTorch wheels put them on targets.
if(NOT TARGET sape2::torch)
  # A CUDA build of LibTorch otherwise compiles a program that asks the GPU, which Debian 12's CMake
  # cannot do with CUDA 13. Our kernels name their architectures themselves.
  if(NOT TORCH_CUDA_ARCH_LIST)
    set(TORCH_CUDA_ARCH_LIST "9.0")
  endif()
  # A PyTorch wheel is found by the folder of its CMake files, share/cmake, and then looks for its libraries in the
  # system first, where another LibTorch may be installed: so its root goes before.
  set(sape2_prefix_path "${CMAKE_PREFIX_PATH}")
  foreach(sape2_prefix IN LISTS sape2_prefix_path Torch_DIR)
    string(REGEX REPLACE "/share/cmake(/Torch)?/?$" "" sape2_prefix "${sape2_prefix}")
    if(EXISTS "${sape2_prefix}/lib/libtorch.so")
      list(APPEND CMAKE_PREFIX_PATH "${sape2_prefix}")
    endif()
  endforeach()
  find_package(Torch REQUIRED)
  set(CMAKE_PREFIX_PATH "${sape2_prefix_path}")
  add_library(sape2::torch INTERFACE IMPORTED)
  set(sape2_torch_flags "${TORCH_CXX_FLAGS}")
  separate_arguments(sape2_torch_flags)
  # PyTorch's wheels export parts of an older standard library, which crash when a program finds them
  # before its own; so the program's own goes first.
  set_target_properties(
    sape2::torch
    PROPERTIES INTERFACE_LINK_LIBRARIES "stdc++;${TORCH_LIBRARIES}"
               INTERFACE_INCLUDE_DIRECTORIES "${TORCH_INCLUDE_DIRS}"
               INTERFACE_COMPILE_OPTIONS "${sape2_torch_flags}")
endif()
