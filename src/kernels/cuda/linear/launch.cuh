#pragma once

#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/tensor_map.h"
#include "kernels/cuda/linear/fits.h"
#include "kernels/cuda/linear/kernels.h"
#include "kernels/cuda/linear/resident.cuh"

#include <cstdint>
#include <string>

/// How a variant's kernel is started.
namespace sape2::kernels::cuda::linear {

/// Boxes of 64 columns of a contiguous matrix.
inline CUtensorMap matrix_map(const void* data, std::int64_t rows, std::int64_t columns,
                              int box_rows) {
  CUtensorMap map;
  const std::int64_t all = rows * columns;
  if (!make_tensor_map({.data = data,
                        .type = kMapType<Bf16>,
                        .sizes = {columns, rows, 1, 1, 1},
                        .strides = {columns, all, all, all},
                        .box = {kPanel, box_rows, 1}},
                       &map))
    throw Error("CUDA: TMA refuses a matrix of " + std::to_string(rows) + " × " +
                std::to_string(columns) + "; rows of a multiple of 16 bytes were expected");
  return map;
}

template <class Plan, template <int, int> class Epilogue>
void run_resident(const Product& p,
                  const typename Epilogue<Plan::kColumns / 8, kSlots>::Params& epilogue,
                  cudaStream_t stream) {
  using Params = ResidentParams<typename Epilogue<Plan::kColumns / 8, kSlots>::Params>;
  const ResidentSizes sizes{
      .tiles = tiles_of(p.rows, kRows),
      .chunks = tiles_of(p.depth, kChunk),
      .blocks = resident_blocks(Plan::kColumns, p.rows, p.width, multiprocessors())};
  const Params params{matrix_map(p.a, p.rows, p.depth, kRows),
                      Plan::kTurned ? matrix_map(p.b, p.depth, p.width, kChunk)
                                    : matrix_map(p.b, p.width, p.depth, Plan::kColumns),
                      sizes, epilogue};
  launch(resident_kernel<Plan, Epilogue, Params>,
         std::int64_t(sizes.blocks) * tiles_of(p.width, Plan::kColumns), {.overlapping = true},
         Plan::kThreads, resident_smem_bytes(Plan::kColumns, sizes.chunks), stream, params);
}

/// Calls use(Plan) with the compiled plan for `columns`.
template <bool Turned, class Use>
void with_resident(int columns, Use use) {
  if (columns == kWide) return use(ResidentPlan<kWide, Turned>());
  return use(ResidentPlan<kNarrow, Turned>());
}

}  // namespace sape2::kernels::cuda::linear
