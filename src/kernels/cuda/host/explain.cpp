#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/cope/chunks.h"
#include "kernels/cuda/host/dispatch.h"
#include "kernels/cuda/host/geometry.h"

#include <sstream>

namespace sape2::kernels::cuda {
namespace {

using Kernels = std::vector<std::string>;

/// Adds up what blocks have found of gradients that all of them share.
void add_sum(Kernels& all, const Call& call) {
  if (call.op == Operator::plain) return;
  all.push_back(std::string("common/partial_sums.cu: sum_kernel, ") +
                (call.op == Operator::axis_bias ? "the gain's gradient, if there is a gain"
                                                : "parameters' gradients"));
}

const char* grid_name(head::GridKind grid) {
  switch (grid) {
    case head::GridKind::any:
      return "any grid";
    case head::GridKind::up_to_8:
      return "up to 8×8";
    case head::GridKind::up_to_12:
      return "up to 12×12";
    case head::GridKind::up_to_16:
      return "up to 16×16";
    case head::GridKind::seven:
      return "7×7";
    case head::GridKind::eight:
      return "8×8";
    case head::GridKind::fourteen:
      return "14×14";
  }
  return "";
}

/// The sizes that the head kernel of a call is compiled for, and whether it reads saved stage 1.
head::Layout head_layout(const Call& call, const Device& device) {
  auto g = geometry_of(call.shape, call.dtype, {});
  g.aligned = g.aligned && call.aligned;
  const bool plain = call.op == Operator::plain;
  const auto stage = stage_of(call, plain ? head::without_grid(g) : g);
  const auto form = plain ? BiasForm::none : bias_form(call.form, stage.sets);
  return head::make_layout(stage, call.op == Operator::sape2, form, call.backward, device);
}

Kernels head_kernels(const Call& call, const Device& device) {
  const auto layout = head_layout(call, device);
  const std::string size = std::string(" for ") + grid_name(layout.grid);
  if (!call.backward) return {"attention_head/forward.cuh: forward_kernel" + size};
  const bool saves = layout.saves && layout.grid != head::GridKind::any;
  Kernels all = {saves ? "attention_head/backward_saved.cuh: backward_saved_kernel" + size
                       : "attention_head/backward.cuh: backward_kernel" + size};
  add_sum(all, call);
  return all;
}

void add_stage1_forward(Kernels& all, const Call& call, const Choice& choice) {
  const bool distance = call.form == Form::distance && call.op != Operator::axis_vectors;
  if (choice.stage1 == Stage1::specialized) {
    if (distance) all.push_back("axis_vectors/specialized/center.cuh: center_kernel");
    all.push_back("axis_vectors/specialized/forward.cuh: forward_kernel");
  } else if (choice.stage1 == Stage1::generic) {
    all.push_back("axis_vectors/generic/forward.cuh: forward_kernel");
    if (distance) all.push_back("axis_vectors/center.cuh: center_kernel");
  }
}

void add_stage1_backward(Kernels& all, const Choice& choice) {
  const std::string folder = choice.stage1 == Stage1::specialized ? "specialized" : "generic";
  all.push_back("axis_vectors/" + folder + "/backward.cuh: backward_kernel, x then y");
}

Kernels tile_kernels(const Call& call, const Choice& choice) {
  Kernels all;
  const bool distance = call.op != Operator::plain && call.form == Form::distance;
  if (call.op == Operator::axis_bias) {
    all.push_back("axis_vectors/exchange.cu: import_kernel");
    if (distance) all.push_back("axis_vectors/center.cuh: center_kernel");
  }
  if (!call.backward) {
    add_stage1_forward(all, call, choice);
    if (choice.attention == Attention::sm80)
      all.push_back("attention_sm80/forward.cuh: forward_kernel");
    else if (distance)
      all.push_back("attention_sm90/distance/forward.cuh: distance_forward_kernel");
    else
      all.push_back("attention_sm90/direct/forward.cuh: forward_kernel");
    return all;
  }
  const bool has_stage1 = call.op == Operator::sape2;
  if (choice.attention == Attention::sm80) {
    all.push_back("attention_sm80/backward.cuh: backward_kernel, queries along rows, then keys");
  } else if (distance) {
    all.push_back("attention_sm90/distance/backward.cuh: lse_delta_kernel");
    all.push_back("attention_sm90/distance/backward.cuh: distance_bwd_kernel");
  } else {
    all.push_back("attention_sm90/direct/bwd_dq.cuh: bwd_dq_kernel");
    if (choice.stage1_before_dkdv) add_stage1_backward(all, choice);
    all.push_back("attention_sm90/direct/bwd_dkdv.cuh: bwd_dkdv_kernel");
  }
  if (has_stage1 && !choice.stage1_before_dkdv) add_stage1_backward(all, choice);
  if (call.op == Operator::axis_bias) all.push_back("axis_vectors/exchange.cu: export_kernel");
  add_sum(all, call);
  return all;
}

Kernels cope_kernels(const Call& call) {
  if (!call.backward) return {"cope/forward.cuh: forward_kernel"};
  Kernels all = {"cope/backward.cuh: backward_kernel"};
  if (cope::chunks_of_head(call.shape.images * call.shape.heads, call.shape.tokens()) > 1)
    all.push_back("cope/backward.cuh: cope_keys_kernel");
  add_sum(all, call);
  return all;
}

const char* name_of(DType dtype) {
  return dtype == DType::float32 ? "float32" : dtype == DType::bfloat16 ? "bfloat16" : "float16";
}

const char* name_of(Operator op) {
  switch (op) {
    case Operator::plain:
      return "attention";
    case Operator::axis_bias:
      return "attention from given axis vectors";
    case Operator::sape2:
      return "sape2_attention";
    case Operator::axis_vectors:
      return "sape2_vectors";
    case Operator::cope:
      return "cope_attention";
  }
  return "";
}

}  // namespace

const char* name_of(Attention attention) {
  switch (attention) {
    case Attention::none:
      return "none";
    case Attention::cope:
      return "cope";
    case Attention::sm80:
      return "attention_sm80";
    case Attention::sm90:
      return "attention_sm90";
    case Attention::head:
      return "attention_head";
  }
  return "";
}

const char* name_of(Stage1 stage1) {
  switch (stage1) {
    case Stage1::none:
      return "none";
    case Stage1::generic:
      return "axis_vectors/generic";
    case Stage1::specialized:
      return "axis_vectors/specialized";
    case Stage1::in_attention:
      return "in the attention kernel";
  }
  return "";
}

std::vector<std::string> kernels_of(const Call& call, const Device& device) {
  const Choice choice = choose(call, device);
  if (call.op == Operator::cope) return cope_kernels(call);
  if (choice.attention == Attention::head) return head_kernels(call, device);
  if (call.op == Operator::axis_vectors) {
    Kernels all;
    if (call.backward) {
      add_stage1_backward(all, choice);
      add_sum(all, call);
    } else {
      add_stage1_forward(all, call, choice);
    }
    return all;
  }
  return tile_kernels(call, choice);
}

std::string explain(const Call& call, const Device& device) {
  const auto& s = call.shape;
  std::ostringstream text;
  text << name_of(call.op) << ' ' << (call.backward ? "backward" : "forward") << ", "
       << name_of(call.dtype) << ", " << s.images << " images × " << s.heads << " heads, ";
  if (call.op == Operator::plain || call.op == Operator::cope) {
    text << s.tokens() << " tokens";
  } else {
    text << s.rows << "×" << s.cols << " patches";
    if (s.prefix > 0) text << " + " << s.prefix << " prefix tokens";
    if (call.op != Operator::axis_vectors)
      text << ", " << (call.form == Form::direct ? "direct" : "distance");
    if (call.source == Source::qk) text << ", two sets of vectors";
  }
  text << ", head size " << s.head_size << '\n';
  if (const auto why = refusal(call, device); !why.empty()) {
    text << "  no fused kernel: " << why << '\n';
    return text.str();
  }
  const Choice choice = choose(call, device);
  if (choice.attention != Attention::none)
    text << "  attention: " << name_of(choice.attention) << '\n';
  if (choice.stage1 != Stage1::none) text << "  stage 1: " << name_of(choice.stage1) << '\n';
  text << "  kernels:\n";
  for (const auto& kernel : kernels_of(call, device)) text << "    " << kernel << '\n';
  const auto passed_over = [&](const char* family, const char* why) {
    if (why != nullptr) text << "  not " << family << ": " << why << '\n';
  };
  passed_over("attention_head", choice.not_head);
  passed_over("attention_sm90", choice.not_sm90);
  passed_over("axis_vectors/specialized", choice.not_specialized);
  return text.str();
}

}  // namespace sape2::kernels::cuda
