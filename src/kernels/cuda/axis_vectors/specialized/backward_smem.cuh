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

  // Places in bytes: tokens, the table, staging, the warps' work, their bins, sums, barriers.
  static constexpr int kTokenBytes = 2 * Lines::kTileBytes;
  static constexpr int kTable = kBuffers * kTokenBytes;
  static constexpr int kStaging = kTable + Lines::kTableBytes;
  static constexpr int kWork =
      kStaging + (kOwnStaging ? Lines::kWarps * WarpSmem<Lines>::kRows : 0);
  static constexpr int kBins = kWork + Lines::kWarps * WarpSmem<Lines>::kBytes;
  static constexpr int kSums = kBins + Lines::kWarps * WarpSmem<Lines>::kBinBytes;
  static constexpr int kBarriers = kSums + int(sizeof(typename ParameterSums<Lines>::Own));
  static constexpr int kBytes = kBarriers + kBuffers * int(sizeof(Mbarrier));
  static_assert((kTokenBytes / 2 | Lines::kTableBytes) % kSharedAlignment == 0);
  static_assert(kWork % 128 == 0 && kSums % alignof(typename ParameterSums<Lines>::Own) == 0 &&
                kBarriers % alignof(Mbarrier) == 0);
  static_assert(ParameterSums<Lines>::kBytes <= kBins - kWork);
  static_assert(kBlocks * (kBytes + 1024) <= 228 * 1024);  // of Hopper
};

}  // namespace sape2::kernels::cuda::axis_vectors::specialized
