// Entry points of attention with contextual positions.
#include "kernels/cuda/common/partial_sums.h"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/cope/chunks.h"
#include "kernels/cuda/cope/kernels.h"
#include "kernels/cuda/cope/smem.h"
#include "kernels/cuda/host/arena.h"
#include "kernels/cuda/host/attention_calls.h"
#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/host/dispatch.h"
#include "kernels/cuda/host/geometry.h"
#include "kernels/cuda/host/launch.h"

namespace sape2::kernels::cuda {
namespace {

/// Raster order is the order of the tokens: one row of them, none in front.
AttentionInputs in_one_row(AttentionInputs in) {
  in.shape = {in.shape.images, in.shape.heads, 1, in.shape.tokens(), 0, in.shape.head_size};
  return in;
}

void check_cope(const AttentionInputs& in, const CopeEncoding& encoding) {
  Call call;
  call.op = Operator::cope;
  call.shape = in.shape;
  call.dtype = in.dtype;
  call.scale = in.scale;
  check_call(call);
  if (encoding.positions < 2)
    throw Error("the table has " + std::to_string(encoding.positions) +
                " positions; at least 2 were expected");
}

/// How a call is divided, and what it keeps in scratch memory.
struct Plan {
  Plan(const AttentionInputs& in, const CopeEncoding& encoding, bool backward, Arena& arena) {
    const auto g = geometry_of(in.shape, in.dtype, {});
    tiles = g.padded_tokens / kRowTile;
    const bool several = tiles > 1;
    if (backward) chunks = cope::chunks_of_head(g.batch_heads, g.tokens);
    blocks = backward ? std::min(g.batch_heads * chunks, cope::kMostBlocks) : g.batch_heads * tiles;

    cope.table = encoding.table;
    cope.positions = static_cast<int>(std::min<std::int64_t>(encoding.positions, g.tokens + 1));
    cope.gate_scale = encoding.gate_scale;
    cope.bias_factor = encoding.inside ? in.scale : 1.0F;
    // Neighbouring queries' values are four banks apart, and the last one has a successor.
    cope.pitch = round_up(cope.positions - 3, 32) + 4;
    const std::int64_t sets = backward && several ? 2 : 1;
    const std::int64_t values = blocks * kRowTile * cope.pitch;
    const int element = static_cast<int>(element_bytes(in.dtype));
    const int padded_head = compiled_head_size(element, g.head_size);
    if (cope::smem_bytes(element, padded_head, backward) + sets * kRowTile * cope.pitch * 4 >
        shared_memory_limit()) {
      cope.values = arena.take_floats(values);
      if (sets == 2) dvalues = arena.take_floats(values);
    }
    if (!backward) return;
    dtable = arena.take_floats(blocks * cope.positions * g.head_size);
    if (!several) return;
    later = arena.take_floats(blocks * tiles * kRowTile);
    const std::int64_t sums = blocks * g.padded_tokens * padded_head;
    dk = arena.take_floats(sums);
    dv = arena.take_floats(sums);
  }

  int tiles = 1, chunks = 1;
  std::int64_t blocks = 0;
  cope::Params cope{};
  float *dvalues = nullptr, *dtable = nullptr, *later = nullptr, *dk = nullptr, *dv = nullptr;
};

}  // namespace

int cope::value_bytes(int pitch) {
  return kRowTile * pitch * 4;
}

std::size_t cope_attention_workspace(const AttentionInputs& inputs, const CopeEncoding& encoding,
                                     bool backward) {
  const auto in = in_one_row(inputs);
  check_cope(in, encoding);
  Arena arena;
  const Plan plan(in, encoding, backward, arena);
  return arena.used();
}

void cope_attention_forward(const AttentionInputs& inputs, const CopeEncoding& encoding,
                            const AttentionOutputs& outputs, const Launch& launch) {
  const auto in = in_one_row(inputs);
  check_cope(in, encoding);
  Arena arena(launch.workspace, launch.workspace_bytes);
  const Plan plan(in, encoding, false, arena);
  cope::ForwardParams p{};
  p.attention = attention_params(
      in, geometry_of(in.shape, in.dtype, {in.q, in.k, in.v, as_const(outputs.out)}));
  p.attention.out = outputs.out;
  p.attention.softmax = outputs.softmax;
  p.cope = plan.cope;
  dispatch_type(in.dtype, [&](auto type) { cope::forward<decltype(type)>(p, stream_of(launch)); });
}

void cope_attention_backward(const AttentionInputs& inputs, const CopeEncoding& encoding,
                             const AttentionSaved& saved, const AttentionGradients& gradients,
                             float* dtable, const Launch& launch) {
  const auto in = in_one_row(inputs);
  check_cope(in, encoding);
  Arena arena(launch.workspace, launch.workspace_bytes);
  const Plan plan(in, encoding, true, arena);
  const auto& d = gradients;
  cope::BackwardParams p{};
  p.attention.forward =
      attention_params(in, geometry_of(in.shape, in.dtype,
                                       {in.q, in.k, in.v, saved.out, saved.dout, as_const(d.dq),
                                        as_const(d.dk), as_const(d.dv)}));
  p.attention.forward.softmax = const_cast<SoftmaxRow*>(saved.softmax);  // only read
  p.attention.out = saved.out;
  p.attention.dout = saved.dout;
  p.attention.dq = d.dq;
  p.attention.dk = d.dk;
  p.attention.dv = d.dv;
  p.cope = plan.cope;
  p.chunks = plan.chunks;
  p.dvalues = plan.dvalues;
  p.later = plan.later;
  p.dk = plan.dk;
  p.dv = plan.dv;
  p.dtable = plan.dtable;
  p.common = in.scale != 0.0F ? in.scale : 1.0F;
  p.logit_part = in.scale / p.common;
  p.gate_part = encoding.gate_scale / p.common;
  dispatch_type(in.dtype, [&](auto type) {
    cope::backward<decltype(type)>(p, static_cast<int>(plan.blocks), stream_of(launch));
  });
  if (dtable == nullptr) return;
  const std::int64_t reached = plan.cope.positions * in.shape.head_size;
  SumJob job;
  job.parts[0] = {plan.dtable, plan.blocks, reached, 0};
  job.out = dtable;
  job.out_elements = encoding.positions * in.shape.head_size;
  job.elements = reached;
  job.per_head = false;
  SumJobs jobs;
  jobs.images = 1;
  jobs.heads = 1;
  jobs.add(job);
  add_partial_sums(jobs, stream_of(launch));
}

}  // namespace sape2::kernels::cuda
