#pragma once

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>

/// Whether LibTorch can use a GPU here.
namespace sape2::test {

inline bool has_gpu() {
  return at::hasCUDA() && at::detail::getCUDAHooks().getNumGPUs() > 0;
}

}  // namespace sape2::test

/// Ends a test that needs a GPU where there is none, and says so.
#define SAPE2_NEEDS_GPU() \
  if (!sape2::test::has_gpu()) GTEST_SKIP() << "there is no GPU here"
