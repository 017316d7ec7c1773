#pragma once

#include "kernels/cuda/host/params.h"

#include <cuda_runtime.h>

/// Attention with contextual positions: what its kernels are told.
namespace sape2::kernels::cuda::cope {

/// What a query i knows of positions: values z_im = q_i · e_m of all table rows m, read at the sum
/// of its gates from key j to the last one.
struct Params {
  const float* table;  // (positions, head size)
  int positions;       // rows of the table that a sum can reach
  int pitch;           // floats from one query's values to the next one's
  float gate_scale, bias_factor;
  float* values;  // (blocks, 64, pitch); null: in shared memory
};

struct ForwardParams {
  AttentionParams attention;
  Params cope;
};

/// A block takes a head, or of a head's tiles of queries every `chunks`-th, and then the next head.
struct BackwardParams {
  AttentionBackwardParams attention;
  Params cope;
  int chunks;
  float* dvalues;  // as the values
  float* later;    // (blocks, tiles, 64): gates behind a tile of keys; null where there is one tile
  float* dk;  // (blocks, padded tokens, padded head size): sums over tiles of queries; likewise
  float* dv;
  float* dtable;  // (blocks, positions, head size): partial sums
  // dS = common · (logit_part · G + gate_part · …): in 16 bits the bracket keeps more digits.
  float common, logit_part, gate_part;
};

template <class T>
void forward(const ForwardParams& p, cudaStream_t stream);
template <class T>
void backward(const BackwardParams& p, int blocks, cudaStream_t stream);

/// Bytes of 64 queries' table values.
int value_bytes(int pitch);

}  // namespace sape2::kernels::cuda::cope
