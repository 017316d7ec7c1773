#pragma once

#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/axis_vectors/specialized/backward_steps.cuh"
#include "kernels/cuda/axis_vectors/specialized/parameter_sums.cuh"

namespace sape2::kernels::cuda::axis_vectors::specialized {

/// What a block has room for in shared memory, so that as many as registers allow run at once.
template <class Lines>
struct BackwardSmem {
  static constexpr int kBlocks = Lines::kLong == 48 ? 4 : 3;
  /// Whether lines of q and k come while those before them are at work, and the vectors' gradients
  /// with them.
  static constexpr bool kAhead = Lines::kLong <= 32;
  static constexpr int kBuffers = kAhead ? 2 : 1;
  /// Whether rows of dk leave from a place of their own, not by way of work as those of dq do.
  static constexpr bool kOwnStaging = Lines::kLong < 64;

  static constexpr int kTokenBytes = 2 * Lines::kTileBytes;
  static constexpr int kBytes =
      kBuffers * kTokenBytes + Lines::kTableBytes +
      Lines::kWarps * (WarpSmem<Lines>::kBytes + WarpSmem<Lines>::kBinBytes) +
      (kOwnStaging ? Lines::kWarps * WarpSmem<Lines>::kRows : 0) +
      sizeof(typename ParameterSums<Lines>::Own) + kBuffers * sizeof(Mbarrier);
  static_assert(kBlocks * (kBytes + 1024) <= 228 * 1024);  // of Hopper
};

}  // namespace sape2::kernels::cuda::axis_vectors::specialized
