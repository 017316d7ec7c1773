#pragma once

#include <cstdint>
#include <string>

namespace sape2::ops {

/// A call of an operator by its sizes and options alone.
struct KernelQuery {
  /// attention, sape2_attention, sape2_vectors, distance_attention, axial_attention or
  /// cope_attention.
  std::string op = "sape2_attention";
  int64_t images = 1, heads = 1, rows = 1, cols = 1, head_size = 64, prefix = 0;
  std::string dtype = "bfloat16";  ///< or float16, float32
  std::string form = "direct";     ///< of sape2_attention; or distance
  std::string mode = "k";          ///< q, k or qk
  std::string span;                ///< suffix or between; empty: the one that belongs to the form
  int64_t positions = 0;           ///< rows of a table of positions; 0: as many as none leaves
  bool backward = false;
  /// A compute capability, e.g. "sm_90", or "cuda": the current GPU.
  std::string device = "sm_90";
};

/// Which CUDA kernels the call takes, and why not faster ones, in some lines. No GPU is needed
/// unless `device` is "cuda". Throws an exception with one sentence if the query makes no sense.
std::string kernel_for(const KernelQuery& query);

}  // namespace sape2::ops
