#pragma once

#include "sape2/base/error.h"
#include "sape2/kernels/cuda.h"

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <string>

/// What kernels' callers must know of the current device, asked once of each.
namespace sape2::kernels::cuda {

inline void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  throw Error(std::string("CUDA: ") + what + " failed: " + cudaGetErrorString(code) +
              "; check the device and its free memory");
}

/// The answer, 0 or more, of `ask` for the current device. Each question is a type of its own, as
/// every lambda is.
template <class Ask>
int once_a_device(Ask ask) {
  constexpr int kRemembered = 64;
  static std::array<std::atomic<int>, kRemembered> known{};  // one more than the answer
  int device = 0;
  check(cudaGetDevice(&device), "asking for the current device");
  if (device < kRemembered && known[device] != 0) return known[device] - 1;
  const int answer = ask(device);
  if (device < kRemembered) known[device] = answer + 1;
  return answer;
}

/// The most shared memory a block may have.
int shared_memory_limit();

int multiprocessors();

/// Whether the kernels' code for it is that of sm_90a.
bool is_sm90a();

}  // namespace sape2::kernels::cuda
