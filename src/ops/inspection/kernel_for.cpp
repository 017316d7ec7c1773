#include "sape2/ops/kernel_for.h"

#include "sape2/base/in_quotes.h"
#include "sape2/kernels/dispatch.h"
#ifdef SAPE2_FUSED_CUDA
#include "sape2/kernels/cuda.h"
#endif

#include "ops/operators/public_ops.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

namespace sape2::ops {
namespace {

namespace cuda = kernels::cuda;

template <class Value>
Value one_of(const char* argument, const std::string& text,
             std::initializer_list<std::pair<const char*, Value>> values) {
  std::string names;
  for (const auto& [name, value] : values) {
    if (text == name) return value;
    names += (names.empty() ? "\"" : ", \"") + std::string(name) + "\"";
  }
  C10_THROW_ERROR(ValueError, c10::str("kernel_for: ", argument, " is ", in_quotes(text),
                                       "; one of ", names, " was expected"));
}

cuda::Device device_of(const std::string& name) {
  if (name != "cuda") {
    const auto names = cuda::device_names();
    if (std::find(names.begin(), names.end(), name) != names.end()) return cuda::named_device(name);
    std::string all = "\"cuda\"";
    for (const auto& known : names) all += ", \"" + known + "\"";
    C10_THROW_ERROR(ValueError, c10::str("kernel_for: device is ", in_quotes(name), "; one of ",
                                         all, " was expected"));
  }
#ifdef SAPE2_FUSED_CUDA
  return cuda::current_device();
#else
  C10_THROW_ERROR(ValueError,
                  "kernel_for: device is \"cuda\", and this build has no CUDA kernels; name a "
                  "compute capability, e.g. \"sm_90\"");
#endif
}

}  // namespace

std::string kernel_for(const KernelQuery& query) {
  using cuda::Operator;
  for (const int64_t size : {query.images, query.heads, query.rows, query.cols, query.head_size})
    TORCH_CHECK_VALUE(size >= 1 && size <= (int64_t{1} << 24), "kernel_for: a size is ", size,
                      "; images, heads, rows, cols and head_size must be from 1 to 2^24");
  TORCH_CHECK_VALUE(query.prefix >= 0 && query.prefix <= (int64_t{1} << 24),
                    "kernel_for: prefix is ", query.prefix,
                    "; a number from 0 to 2^24 was expected");
  TORCH_CHECK_VALUE(query.positions >= 0 && query.positions <= (int64_t{1} << 24),
                    "kernel_for: positions is ", query.positions,
                    "; a number from 0 to 2^24 was expected");
  cuda::Call call;
  call.op = one_of<Operator>("op", query.op,
                             {{"attention", Operator::plain},
                              {"sape2_attention", Operator::sape2},
                              {"sape2_vectors", Operator::axis_vectors},
                              {"distance_attention", Operator::axis_bias},
                              {"axial_attention", Operator::axis_bias},
                              {"cope_attention", Operator::cope}});
  call.backward = query.backward;
  call.dtype = one_of<kernels::DType>("dtype", query.dtype,
                                      {{"bfloat16", kernels::DType::bfloat16},
                                       {"float16", kernels::DType::float16},
                                       {"float32", kernels::DType::float32}});
  TORCH_CHECK_VALUE(query.form != "paths",
                    "kernel_for: form \"paths\" has no kernels of its own; its first stage is that "
                    "of \"sape2_vectors\", and LibTorch's operators do the second");
  call.form = one_of<kernels::Form>(
      "form", query.form,
      {{"direct", kernels::Form::direct}, {"distance", kernels::Form::distance}});
  if (query.op == "distance_attention") call.form = kernels::Form::distance;
  if (query.op == "axial_attention") call.form = kernels::Form::direct;
  call.source = one_of<kernels::Source>(
      "mode", query.mode,
      {{"q", kernels::Source::q}, {"k", kernels::Source::k}, {"qk", kernels::Source::qk}});
  const bool direct = call.form == kernels::Form::direct;
  call.span = one_of<kernels::Span>(
      "span", query.span.empty() ? (direct ? "between" : "suffix") : query.span,
      {{"suffix", kernels::Span::suffix}, {"between", kernels::Span::between}});
  call.shape = {query.images, query.heads, query.rows, query.cols, query.prefix, query.head_size};
  call.positions = query.positions;
  call.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(query.head_size)));
  return query.device + ": " + cuda::explain(call, device_of(query.device));
}

namespace public_ops {

std::string kernel_for(std::string op, int64_t images, int64_t heads, int64_t rows, int64_t cols,
                       int64_t head_size, int64_t prefix, std::string dtype, std::string form,
                       std::string mode, Optional<std::string> span, int64_t positions,
                       bool backward, std::string device) {
  KernelQuery query;
  query.op = std::move(op);
  query.images = images;
  query.heads = heads;
  query.rows = rows;
  query.cols = cols;
  query.head_size = head_size;
  query.prefix = prefix;
  query.dtype = std::move(dtype);
  query.form = std::move(form);
  query.mode = std::move(mode);
  query.span = span ? *span : std::string();
  query.positions = positions;
  query.backward = backward;
  query.device = std::move(device);
  return ops::kernel_for(query);
}

}  // namespace public_ops
}  // namespace sape2::ops
