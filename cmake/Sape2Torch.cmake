# Finds LibTorch and wraps it as sape2::torch. Used by our own build and by installed packages alike.
# Debian's LibTorch names its folders in TORCH_INCLUDE_DIRS only; PyTorch wheels put them on targets.
if(NOT TARGET sape2::torch)
  # A LibTorch with CUDA otherwise looks for a whole toolkit (cuBLAS, cuFFT, …) where the program nvcc is, enables
  # CMake's CUDA language, and fails if any of it is missing. Of all that we need the runtime and the headers, so these
  # targets stand in for its own; the first also tells it not to look.
  set(sape2_stand_ins "")
  if(NOT TARGET torch::cudart)
    foreach(name torch::cudart torch::nvtoolsext caffe2::cublas caffe2::cufft caffe2::curand caffe2::cudnn-public)
      if(NOT TARGET ${name})
        add_library(${name} INTERFACE IMPORTED)
        list(APPEND sape2_stand_ins ${name})
      endif()
    endforeach()
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
  if(TARGET torch_cuda AND "torch::cudart" IN_LIST sape2_stand_ins)
    include("${CMAKE_CURRENT_LIST_DIR}/CudaToolkit.cmake")
    # LibTorch's headers include those of cuBLAS, cuSPARSE and cuSOLVER. A small toolkit lacks them, but the wheels
    # that PyTorch's depends on have them.
    # From CUDA 13 on they share one folder, beside which those of another version may lie.
    set(sape2_wheels "*")
    if(EXISTS "${TORCH_INSTALL_PREFIX}/version.py")
      file(STRINGS "${TORCH_INSTALL_PREFIX}/version.py" sape2_cuda_version REGEX "^cuda[ :].*=")
      if(sape2_cuda_version MATCHES "'([0-9]+)\\." AND CMAKE_MATCH_1 GREATER_EQUAL 13)
        set(sape2_wheels "cu${CMAKE_MATCH_1}")
      elseif(sape2_cuda_version)
        set(sape2_wheels "c[!u]*" "cu[!0-9]*" "[!c]*")
      endif()
    endif()
    list(TRANSFORM sape2_wheels PREPEND "${TORCH_INSTALL_PREFIX}/../nvidia/")
    list(TRANSFORM sape2_wheels APPEND "/include" OUTPUT_VARIABLE sape2_wheel_include)
    list(TRANSFORM sape2_wheels APPEND "/lib/libcudart.so.*" OUTPUT_VARIABLE sape2_wheel_cudart)
    file(GLOB sape2_cuda_include ${sape2_wheel_include})
    if(EXISTS "${SAPE2_CUDA_TOOLKIT}/include")
      list(PREPEND sape2_cuda_include "${SAPE2_CUDA_TOOLKIT}/include")
    endif()
    set_target_properties(torch::cudart PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${sape2_cuda_include}")
    # They also have the runtime that PyTorch loads. A program loads one only, so not the toolkit's, which may be older.
    file(GLOB sape2_cudart ${sape2_wheel_cudart})
    if(sape2_cudart)
      list(GET sape2_cudart 0 SAPE2_CUDART)
    endif()
    if(SAPE2_CUDART)
      set_target_properties(torch::cudart PROPERTIES INTERFACE_LINK_LIBRARIES "${SAPE2_CUDART}")
    endif()
  endif()
  list(FILTER TORCH_LIBRARIES EXCLUDE REGEX "-NOTFOUND$")
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
