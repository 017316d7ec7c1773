#pragma once

/// Functions that both the host and the device call. Files that use it for all their functions are
/// plain C++: they compile without a CUDA toolkit, and the host library has them on every machine.
#ifdef __CUDACC__
#define SAPE2_HOST_DEVICE __host__ __device__
#else
#define SAPE2_HOST_DEVICE
#endif
