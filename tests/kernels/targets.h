#pragma once

#include "sape2/kernels/runtime.h"

#include <gtest/gtest.h>

namespace sape2::kernels::testing {

/// Runs `body` once on every SIMD target of this machine.
template <typename Body>
void for_each_target(const Body& body) {
  for (const std::string& target : simd_targets()) {
    SCOPED_TRACE("SIMD target " + target);
    use_simd_target(target);
    body();
  }
  use_simd_target("");
}

}  // namespace sape2::kernels::testing
