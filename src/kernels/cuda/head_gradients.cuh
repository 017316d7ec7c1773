#pragma once

#include "kernels/cuda/head_logits.cuh"

/// From the logits' gradients of a whole head, in shared memory, to those of its vectors.
namespace sape2::kernels::cuda {

/// dout · out of the warp's rows: `out` is read early, multiplied once dout has arrived.
template <class T, int Size>
struct RowsDelta {
  static constexpr int kLanes = Size / 8, kSweeps = kLanes / 2;  // sixteen rows by 32 lanes
  uint4 pieces[kSweeps];

  __device__ RowsDelta(const HeadView<const T>& out, const std::int16_t* tokens, const Geometry& g,
                       int own_row) {
    const int lane = threadIdx.x % 32, column = lane % kLanes * 8;
#pragma unroll
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      const int token = tokens[own_row + (sweep * 32 + lane) / kLanes];
      pieces[sweep] = {};
      if (token < 0) continue;
      if (g.aligned) {
        if (column < g.head_size)
          pieces[sweep] = *reinterpret_cast<const uint4*>(out.row(token) + column);
      } else {
        T numbers[8];
#pragma unroll
        for (int i = 0; i < 8; ++i)
          numbers[i] = column + i < g.head_size ? out.row(token)[column + i] : narrow<T>(0.0F);
        pieces[sweep] = reinterpret_cast<const uint4&>(numbers);
      }
    }
  }

  __device__ void finish(const Tile<T>& dout, int own_row, float* deltas) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      const int row = own_row + (sweep * 32 + lane) / kLanes;
      const uint4 other = *reinterpret_cast<const uint4*>(dout.piece(row, lane % kLanes));
      const std::uint32_t a[4] = {pieces[sweep].x, pieces[sweep].y, pieces[sweep].z,
                                  pieces[sweep].w};
      const std::uint32_t b[4] = {other.x, other.y, other.z, other.w};
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 left = unpack<T>(a[i]), right = unpack<T>(b[i]);
        sum += left.x * right.x + left.y * right.y;
      }
#pragma unroll
      for (int step = kLanes / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
      if (lane % kLanes == 0) deltas[row] = sum;
    }
  }
};

/// The direct form: sums along grid columns stay in registers, sums along a grid row are finished
/// as its keys are.
struct DirectSums {
  float along_x[2][4] = {};

  /// `gradient`: of sixteen keys from `slot` on; returns this lane's share of Σ gradient · y_i. The
  /// warp's y vectors give way to their gradients.
  __device__ float add(const float (&gradient)[2][4], const HeadLayout& l, int slot, float factor,
                       float* lines) {
    const Lane lane;
    float sums[4];  // (eight, half)
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      const bool on_grid = slot + 8 * piece < l.grid_slots;
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (on_grid) along_x[piece][e] += gradient[piece][e];
      sums[2 * piece] = gradient[piece][0] + gradient[piece][1];
      sums[2 * piece + 1] = gradient[piece][2] + gradient[piece][3];
    }
    // Four sums over four lanes: lane t ends up with sum t.
    const bool odd = lane.t & 1, high = lane.t & 2;
    float low_sum = odd ? sums[1] : sums[0], high_sum = odd ? sums[3] : sums[2];
    low_sum += __shfl_xor_sync(0xffffffffu, odd ? sums[0] : sums[1], 1);
    high_sum += __shfl_xor_sync(0xffffffffu, odd ? sums[2] : sums[3], 1);
    float sum = high ? high_sum : low_sum;
    sum += __shfl_xor_sync(0xffffffffu, high ? low_sum : high_sum, 2);
    if (l.row_width == 16) sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const EightSlots keys(l, slot + (high ? 8 : 0));
    if (keys.y < 0 || (l.row_width == 16 && high)) return 0.0F;
    float& place = lines[(lane.g + (odd ? 8 : 0)) * l.line_pitch + l.row_width + keys.y];
    const float with_bias = sum * place;
    place = sum * factor;
    return with_bias;
  }

  /// The same for x, at the end.
  __device__ float finish(const HeadLayout& l, int cols, float factor, float* lines) {
    const Lane lane;
    float with_bias = 0.0F;
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      if (eight * 8 >= l.row_width) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int x = eight * 8 + 2 * lane.t + e % 2;
        if (x >= cols) continue;
        const float sum = l.row_width == 8 ? along_x[0][e] + along_x[1][e] : along_x[eight][e];
        float& place = lines[(lane.g + e / 2 * 8) * l.line_pitch + x];
        with_bias += sum * place;
        place = sum * factor;
      }
    }
    return with_bias;
  }
};

/// The distance form, once the whole square is known: with ω = (gradient both ways round) /
/// distance, dU_i = Σ_n ω_in (u_i − u_n), here u_i·Σω − ω·U with the same rounded ω in both.
/// Returns this lane's share of Σ gradient · bias.
template <class T>
__device__ float distance_gradients(const HeadLayout& l, const Geometry& g, const OwnSlots& own,
                                    const HeadNear<T>& near, const Square<T>& square, float factor,
                                    float* lines) {
  constexpr int kMostPieces = 4;  // entries of an axis in eights: up to 16 columns, 32 rows
  const Lane lane;
  float with_bias = 0.0F;
  float sum[2][kMostPieces][4] = {};
  float weight[2][2] = {};  // (axis, half)
#pragma unroll 1
  for (int slot = 0; slot < l.grid_slots; slot += 16) {
    const auto there = load_a(square, own.first, slot);
    const auto back = load_a_columns<T>(square, slot, own.first);
    float one_way[2][4], both[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 a = unpack<T>(there.r[i]), b = unpack<T>(back.r[i]);
      const int piece = i / 2, e = i % 2 * 2;
      const bool on_grid = slot + 8 * piece < l.grid_slots && own.eight[i % 2].y >= 0;
      one_way[piece][e] = on_grid ? a.x : 0.0F;
      one_way[piece][e + 1] = on_grid ? a.y : 0.0F;
      both[piece][e] = on_grid ? (a.x + b.x) * factor : 0.0F;
      both[piece][e + 1] = on_grid ? (a.y + b.y) * factor : 0.0F;
    }
#pragma unroll
    for (int axis = 0; axis < 2; ++axis) {
      float d[2][4];
      near.squared(d, axis, own.first, slot);
#pragma unroll
      for (int piece = 0; piece < 2; ++piece)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float inverse = fast_inverse_root(d[piece][e]);
          with_bias += one_way[piece][e] * (d[piece][e] * inverse);
          d[piece][e] = both[piece][e] * inverse;
        }
      const auto omega = as_a<T>(d[0], d[1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = unpack<T>(omega.r[i]);
        weight[axis][i % 2] += pair.x + pair.y;
      }
      const int first = near.first_column(axis), end = near.end_column(axis);
#pragma unroll
      for (int piece = 0; piece < (axis ? kMostPieces : 2); piece += 2) {
        if (first + piece * 8 >= end) break;
        FragmentB<T> b[2];
        load_b_columns(b, near.tile, slot, first + piece * 8);
        multiply_add(sum[axis][piece], omega, b[0]);
        multiply_add(sum[axis][piece + 1], omega, b[1]);
      }
    }
  }
#pragma unroll
  for (int axis = 0; axis < 2; ++axis) {
    const int entries = axis ? g.rows : g.cols;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      weight[axis][half] += __shfl_xor_sync(0xffffffffu, weight[axis][half], 1);
      weight[axis][half] += __shfl_xor_sync(0xffffffffu, weight[axis][half], 2);
    }
#pragma unroll
    for (int piece = 0; piece < (axis ? kMostPieces : 2); ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int entry = piece * 8 + 2 * lane.t + e % 2, row = lane.g + e / 2 * 8;
        if (entry >= entries) continue;
        const float u = widen(near.tile.at(own.first + row, near.first_column(axis) + entry));
        lines[row * l.line_pitch + axis * l.row_width + entry] =
            weight[axis][e / 2] * u - sum[axis][piece][e];
      }
  }
  return with_bias;
}

/// Gradients of given vectors, of this lane's patch and axis; all sets get the same where the
/// kernel holds their sum.
template <class T>
__device__ void write_line(const HeadBackward& p, const LineWalk& walk, std::int64_t batch_head,
                           int slot, int axis, int first_set, int sets, const float* from) {
  if (p.dgiven[axis] == nullptr || !walk.is_patch) return;
  const auto& g = p.forward.attention.geometry;
  const auto& l = p.forward.layout;
  const std::int64_t patches = g.tokens - g.prefix;
  const int patch = slot / l.row_width * g.cols + slot % l.row_width;
  for (int set = first_set; set < first_set + sets; ++set)
    for (int m = 0; m < walk.length; ++m)
      static_cast<T*>(
          p.dgiven[axis])[((set * g.batch_heads + batch_head) * patches + patch) * walk.length +
                          m] = narrow<T>(from[m]);
}

/// This block's partial sums of the tables' gradients: binsᵀ · source, sixteen table rows and
/// sixteen channels a turn.
template <class T, int Size>
__device__ void add_table_gradients(const HeadBackward& p, const OwnSlots& own, int set, bool first,
                                    const Tile<T>& bins, const Tile<T>& source) {
  const auto& l = p.forward.layout;
  const auto& axes = p.forward.stage.axes;
  const int head_size = p.forward.attention.geometry.head_size;
  const Lane lane;
  float* const partial = p.dtables + (std::int64_t(blockIdx.x) * p.forward.stage.sets + set) *
                                         (axes[0].positions + axes[1].positions) * head_size;
  constexpr int kAcross = Size / 16;
  for (int unit = own.warp; unit < l.table_rows / 16 * kAcross; unit += l.warps) {
    const int row = unit / kAcross * 16, column = unit % kAcross * 16;
    float c[2][4] = {};
#pragma unroll 2
    for (int slot = 0; slot < l.grid_slots; slot += 16) {
      const auto a = load_a_columns<T>(bins, slot, row);
      FragmentB<T> b[2];
      load_b_columns(b, source, slot, column);
      multiply_add(c[0], a, b[0]);
      multiply_add(c[1], a, b[1]);
    }
    const int axis = row >= l.second_table;
    const int first_row = row - axis * l.second_table, rows = axes[axis].positions;
    float* const to = partial + axis * axes[0].positions * head_size;
    float* places[2][4];
    float before[2][4];
#pragma unroll
    for (int piece = 0; piece < 2; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int bin = first_row + lane.g + e / 2 * 8;
        const int channel = column + piece * 8 + 2 * lane.t + e % 2;
        const bool used = bin < rows && channel < head_size;
        places[piece][e] = used ? to + bin * head_size + channel : nullptr;
        before[piece][e] = used && !first ? *places[piece][e] : 0.0F;
      }
#pragma unroll
    for (int piece = 0; piece < 2; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (places[piece][e] != nullptr) *places[piece][e] = before[piece][e] + c[piece][e];
  }
}

}  // namespace sape2::kernels::cuda
