#pragma once

#include "cli/bench/attention/attention_case.h"

#include <optional>

namespace sape2::cli {

/// One way of computing a case on a GPU, in milliseconds.
struct GpuMeasured {
  double called = 0;               ///< from C++, one call after the other
  std::optional<double> recorded;  ///< replayed from a CUDA graph: the device alone
  double mebibytes = 0;            ///< peak beyond inputs

  double device() const { return recorded.value_or(called); }
};

/// What the GPU reaches in one large copy and one large product of a type.
struct GpuCeilings {
  std::string dtype;
  double terabytes = 0;  ///< a second, read and written
  double teraflops = 0;
};

/// One line of the table. The reference is missing where it does not fit into memory or was not
/// wanted.
struct GpuAttentionRow {
  AttentionCase wanted;
  GpuMeasured fused, plain;
  std::optional<GpuMeasured> reference;
  GpuCeilings ceilings;

  /// Time of plain attention at the ceilings over the fused time.
  double share_of_ceilings() const;
};

GpuCeilings measure_ceilings(const std::string& device, const std::string& dtype, int rounds);

/// Fused and plain attention, and the encoding's formula in LibTorch operations, in one process.
GpuAttentionRow measure_gpu_row(const AttentionCase& wanted, const GpuCeilings& ceilings,
                                int rounds, bool with_reference);

}  // namespace sape2::cli
