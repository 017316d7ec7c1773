#pragma once

#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/host/params.h"

#include <cuda_runtime.h>

/// Attention of small grids, one block per head: one launch forward, one backward.
namespace sape2::kernels::cuda::head {

struct ForwardParams {
  // Its vector buffers are not used. Without `out` forward only saves stage 1.
  AttentionParams attention;
  axis_vectors::Params stage;  // without tables only `sets` counts
  bool has_tables;
  const void* given[2];  // without tables: vectors by axis, (sets, batch_heads, patches, entries)
  uint4* saved;          // (batch_heads, warps, saved_chunks, 32); stage 1; null: not saved
  Layout layout;
  int images, blocks_per_head;  // a block takes every blocks_per_head-th image of its head
};

struct BackwardParams {
  ForwardParams forward;
  ConstView out, dout;
  View dq, dk, dv;
  void* dgiven[2];  // like ForwardParams::given; null: not wanted
  // (blocks_per_head · heads, warps, longest line, 2 + sets, 32); unused with `forward.saved`.
  float* scratch;
  // Partial sums, (blocks_per_head, heads, …); null: not wanted.
  float* dtables;  // (sets, positions of x and of y, head_size)
  float* dgate_scale;
  float* dgate_offset;
  float* dgain;
};

template <class T>
void forward(const ForwardParams& p, BiasForm form, cudaStream_t stream);
template <class T>
void backward(const BackwardParams& p, BiasForm form, cudaStream_t stream);

}  // namespace sape2::kernels::cuda::head
