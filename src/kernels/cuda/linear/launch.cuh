#pragma once

#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/tensor_map.h"
#include "kernels/cuda/linear/calls.h"
#include "kernels/cuda/linear/resident.cuh"

#include <algorithm>

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

/// Blocks of a group that a product has on this device; see ResidentSizes.
template <class Plan>
ResidentSizes resident_sizes(const Product& p) {
  const int groups = tiles_of(p.width, Plan::kColumns), tiles = tiles_of(p.rows, kRows);
  const int most = std::max(1, multiprocessors() / groups);
  return {tiles, tiles_of(p.depth, kChunk), std::min(most, tiles_of(tiles, Plan::kConsumers))};
}

template <class Plan, template <int, int> class Epilogue>
bool run_resident(const Product& p,
                  const typename Epilogue<Plan::kColumns / 8, Plan::kSlots>::Params& epilogue,
                  cudaStream_t stream) {
  using Params = ResidentParams<typename Epilogue<Plan::kColumns / 8, Plan::kSlots>::Params>;
  const ResidentSizes sizes = resident_sizes<Plan>(p);
  if (!fits(Plan::kVariant, p.depth)) return false;
  const Params params{matrix_map(p.a, p.rows, p.depth, kRows),
                      Plan::kTurned ? matrix_map(p.b, p.depth, p.width, kChunk)
                                    : matrix_map(p.b, p.width, p.depth, Plan::kColumns),
                      sizes, epilogue};
  launch(resident_kernel<Plan, Epilogue, Params>,
         std::int64_t(sizes.blocks) * tiles_of(p.width, Plan::kColumns), {.overlapping = true},
         Plan::kThreads, shared_bytes_of(Plan::kVariant, sizes.chunks), stream, params);
  return true;
}

/// Calls use(Plan) with the compiled plan of a variant; false if there is none.
template <bool Turned, class Use>
bool with_resident(const ResidentVariant& v, Use use) {
  if (v == ResidentVariant{192, 2}) return use(ResidentPlan<192, 2, Turned>());
  if (v == ResidentVariant{192, 3}) return use(ResidentPlan<192, 3, Turned>());
  if (v == ResidentVariant{128, 2}) return use(ResidentPlan<128, 2, Turned>());
  if (v == ResidentVariant{128, 3}) return use(ResidentPlan<128, 3, Turned>());
  return false;
}

}  // namespace sape2::kernels::cuda::linear
