# Finds nvcc, its toolkit and CUDA's runtime library: SAPE2_NVCC, SAPE2_CUDA_TOOLKIT (empty without an nvcc that runs), SAPE2_CUDART.
# Used by our own build and by installed packages alike.
include_guard(DIRECTORY)
find_program(SAPE2_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
set(SAPE2_CUDA_TOOLKIT "")
if(SAPE2_NVCC)
  # nvcc says itself where its toolkit is: the program named nvcc may be a script that calls it.
  execute_process(COMMAND "${SAPE2_NVCC}" --dryrun -E -x cu /dev/null ERROR_VARIABLE sape2_plan OUTPUT_QUIET)
  if(sape2_plan MATCHES "TOP=([^\n]*)")
    file(REAL_PATH "${CMAKE_MATCH_1}" SAPE2_CUDA_TOOLKIT)
    find_library(SAPE2_CUDART cudart HINTS "${SAPE2_CUDA_TOOLKIT}/lib64" "${SAPE2_CUDA_TOOLKIT}/lib")
  endif()
endif()
