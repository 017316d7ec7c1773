#include "cli/bench/attention/explain_kernels.h"

#include "sape2/ops/kernel_for.h"

#include <string_view>

namespace sape2::cli {
namespace {

/// The operator that an encoding's attention runs.
void set_operator(const nn::EncodingSpec& encoding, ops::KernelQuery& query) {
  constexpr std::string_view kPaper = "sape2-", kRelative = "sape2-rel-";
  const std::string& name = encoding.name();
  query.op = "attention";
  if (name == "cope") query.op = "cope_attention";
  if (name.starts_with("rpe")) query.op = "axial_attention";
  if (!name.starts_with(kPaper)) return;
  query.op = "sape2_attention";
  query.mode = name.substr(name.starts_with(kRelative) ? kRelative.size() : kPaper.size());
  query.form = encoding.choice("form");
  query.span = encoding.choice("span");
}

}  // namespace

std::string explain_kernels(const AttentionCase& wanted, const std::string& device) {
  ops::KernelQuery query;
  set_operator(wanted.encoding, query);
  query.images = wanted.shape.images;
  query.heads = wanted.shape.heads;
  query.rows = wanted.shape.rows;
  query.cols = wanted.shape.cols;
  query.head_size = wanted.head_size;
  query.dtype = wanted.dtype;
  query.device = device;
  std::string text = wanted.encoding.to_string() + " on " + ops::kernel_for(query);
  query.backward = true;
  if (wanted.backward) text += wanted.encoding.to_string() + " on " + ops::kernel_for(query);
  return text;
}

}  // namespace sape2::cli
