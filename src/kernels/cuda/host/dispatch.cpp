#include "sape2/kernels/dispatch.h"

#include "sape2/base/error.h"

#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/attention_sm80/smem.h"
#include "kernels/cuda/axis_vectors/smem.h"
#include "kernels/cuda/axis_vectors/specialized/limits.h"
#include "kernels/cuda/cope/smem.h"
#include "kernels/cuda/host/dispatch.h"
#include "kernels/cuda/host/geometry.h"

#include <algorithm>
#include <array>

namespace sape2::kernels::cuda {
namespace {

struct NamedDevice {
  const char* name;
  Device device;
};

// Shared memory that a block may have by compute capability, and the largest GPU of each.
constexpr std::array kDevices = {
    NamedDevice{"sm_80", {163 * 1024, 108, false}},   // A100
    NamedDevice{"sm_86", {99 * 1024, 84, false}},     // A40, RTX 3090
    NamedDevice{"sm_89", {99 * 1024, 142, false}},    // L40, RTX 4090
    NamedDevice{"sm_90", {227 * 1024, 132, true}},    // H100, H200
    NamedDevice{"sm_100", {227 * 1024, 148, false}},  // B200
    NamedDevice{"sm_120", {99 * 1024, 188, false}},   // RTX PRO 6000, RTX 5090
};

bool has_stage1(const Call& call) {
  return call.op == Operator::sape2 || call.op == Operator::axis_vectors;
}

bool has_grid(const Call& call) {
  return has_stage1(call) || call.op == Operator::axis_bias;
}

bool is_16_bit(const Call& call) {
  return call.dtype != DType::float32;
}

const char* why_not_sm90(const Call& call, const Geometry& g, BiasForm form, const Device& device) {
  if (!device.sm90a) return "it needs code for sm_90a: a GPU of compute capability 9.0";
  if (!is_16_bit(call)) return "it takes 16-bit types";
  if (g.head_size > 64) return "it takes heads of up to 64 channels";
  if (form == BiasForm::distance_pair) return "it takes one set of vectors at distance";
  if (form == BiasForm::distance && std::max(g.rows, g.cols) > 64)
    return "it takes vectors of up to 64 entries at distance";
  if (form != BiasForm::distance && call.scale <= 0.0F) return "it takes scales above 0";
  if (g.batch_heads == 0) return "there is nothing to do";
  if (!g.aligned) return "TMA needs rows that begin at multiples of 16 bytes";
  return nullptr;
}

const char* why_not_specialized(const Call& call, const axis_vectors::Params& stage) {
  const auto& g = stage.geometry;
  if (call.op == Operator::axis_vectors) return "stage 1 alone writes the caller's layout";
  if (!is_16_bit(call)) return "it takes 16-bit types";
  if (g.head_size != axis_vectors::specialized::kHeadSize) return "it takes heads of 64 channels";
  if (stage.sets != 1) return "it makes one set of vectors";
  if (!axis_vectors::specialized::sizes_fit(g)) return "it takes lines of up to 64 patches";
  if (!axis_vectors::specialized::sizes_fit(stage))
    return "it takes tables that no position leaves";
  if (!g.aligned || !call.tables_aligned)
    return "it needs rows that begin at multiples of 16 bytes";
  if (!call.short_strides) return "32 bits do not count the elements of a head";
  if (call.backward && !call.wants_dq_dk) return "it makes dq and dk together";
  if (g.batch_heads == 0) return "there is nothing to do";
  return nullptr;
}

/// A table of as many rows as no position leaves.
std::int64_t table_rows(const Call& call) {
  const std::int64_t longest = std::max(call.shape.rows, call.shape.cols);
  if (call.positions > 0) return call.positions;
  return call.span == Span::suffix ? longest + 1 : 2 * longest - 1;
}

std::string grid_of(const Shape& shape) {
  return std::to_string(shape.rows) + " × " + std::to_string(shape.cols);
}

/// The sentence about sizes that need more shared memory than there is.
std::string too_large(const std::string& what, const Call& call) {
  return what + " with head size " + std::to_string(call.shape.head_size) +
         " needs more shared memory than the device has; use the reference operators";
}

}  // namespace

axis_vectors::Params stage_of(const Call& call, const Geometry& g) {
  axis_vectors::Params stage{};
  stage.geometry = g;
  if (has_stage1(call)) {
    Encoding encoding;
    encoding.source = call.source;
    encoding.span = call.span;
    encoding.positions = table_rows(call);
    stage = axis_vector_params(g, {}, {}, encoding);
  }
  stage.sets = call.source == Source::qk ? 2 : 1;
  return stage;
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const auto& known : kDevices) names.emplace_back(known.name);
  return names;
}

Device named_device(const std::string& name) {
  std::string names;
  for (const auto& known : kDevices) {
    if (name == known.name) return known.device;
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  throw Error("there is no device '" + name + "'; one of " + names + " was expected");
}

std::string refusal(const Call& call, const Device& device) {
  const auto& shape = call.shape;
  if (shape.head_size > kLargestHead)
    return "the CUDA kernels take heads of up to " + std::to_string(kLargestHead) +
           " channels, and head_size is " + std::to_string(shape.head_size) +
           "; use the reference operators";
  if (shape.tokens() > kMostTokens)
    return "the CUDA kernels take up to " + std::to_string(kMostTokens) +
           " tokens, and there are " + std::to_string(shape.tokens()) +
           "; use fewer, larger patches";
  const int element = static_cast<int>(element_bytes(call.dtype));
  const int head_size = compiled_head_size(element, static_cast<int>(shape.head_size));
  if (call.op == Operator::cope)
    return cope::smem_bytes(element, head_size, true) <= device.shared_memory
               ? std::string()
               : too_large("attention with contextual positions", call);
  if (has_grid(call) && std::max(shape.rows, shape.cols) > kLongestLine)
    return "the CUDA kernels take grids of up to " + std::to_string(kLongestLine) +
           " rows and columns, and there are " + grid_of(shape) + "; use the reference operators";
  const auto g = geometry_of(shape, call.dtype, {});
  if (has_stage1(call)) {
    const axis_vectors::SmemSizes sizes{element, head_size <= 64 ? 64 : 128};
    for (const auto& axis : stage_of(call, g).axes)
      if (std::max(forward_smem_bytes(sizes, axis), backward_smem_bytes(sizes, axis, kWarps)) >
          device.shared_memory)
        return too_large("stage 1 of " + grid_of(shape) + " patches", call);
  }
  if (call.op == Operator::axis_vectors) return {};
  const auto form =
      has_grid(call) ? bias_form(call.form, call.source == Source::qk ? 2 : 1) : BiasForm::none;
  const sm80::SmemSizes sizes{element, head_size, form, round_up(g.cols, 16), round_up(g.rows, 16)};
  const int needed =
      std::max({sm80::forward_smem_bytes(sizes), sm80::backward_smem_bytes(sizes, false),
                sm80::backward_smem_bytes(sizes, true)});
  if (needed > device.shared_memory)
    return too_large(has_grid(call) ? "a bias over " + grid_of(shape) + " patches" : "attention",
                     call);
  return {};
}

Choice choose(const Call& call, const Device& device) {
  Choice choice;
  if (call.op == Operator::cope) {
    choice.attention = Attention::cope;
    return choice;
  }
  auto g = geometry_of(call.shape, call.dtype, {});
  g.aligned = g.aligned && call.aligned;
  const bool plain = call.op == Operator::plain;
  const auto stage = stage_of(call, plain ? head::without_grid(g) : g);
  const auto form = plain ? BiasForm::none : bias_form(call.form, stage.sets);
  if (call.op != Operator::axis_vectors) {
    choice.not_head = head::why_not(stage, has_stage1(call), form, call.dtype, call.scale, device);
    if (choice.not_head == nullptr) {
      choice.attention = Attention::head;
      if (has_stage1(call)) choice.stage1 = Stage1::in_attention;
      return choice;
    }
    choice.not_sm90 = why_not_sm90(call, g, form, device);
    choice.attention = choice.not_sm90 == nullptr ? Attention::sm90 : Attention::sm80;
  }
  if (!has_stage1(call)) return choice;
  choice.not_specialized = why_not_specialized(call, stage);
  choice.stage1 = choice.not_specialized == nullptr ? Stage1::specialized : Stage1::generic;
  // By sizes alone, as scratch memory is asked for before rows are known to be aligned.
  choice.stage1_in_clusters = call.op == Operator::sape2 && is_16_bit(call) && device.sm90a &&
                              axis_vectors::specialized::sizes_fit(stage);
  choice.stage1_before_dkdv = call.backward && may_begin_dk(choice, call.form) &&
                              choice.stage1 == Stage1::specialized &&
                              choice.attention == Attention::sm90;
  return choice;
}

}  // namespace sape2::kernels::cuda
