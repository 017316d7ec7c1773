#include "cli/bench/attention/attention_case.h"

#include "sape2/base/error.h"
#include "sape2/ops/ops.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/version.h>

#include <charconv>
#include <cmath>

namespace sape2::cli {
namespace {

constexpr std::int64_t kMostTokens = 1 << 20;

/// `AxB` as two numbers from 1 up; false where it is anything else.
bool parse_pair(std::string_view text, std::int64_t& first, std::int64_t& second) {
  const auto cross = text.find('x');
  if (cross == std::string_view::npos) return false;
  const auto number = [](std::string_view part, std::int64_t& value) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    return error == std::errc() && end == part.data() + part.size() && value >= 1 &&
           value <= kMostTokens;
  };
  return number(text.substr(0, cross), first) && number(text.substr(cross + 1), second);
}

/// On a GPU LibTorch's own fused attention; on the CPU the formula as anybody would write it.
at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
#if TORCH_VERSION_MAJOR >= 2
  if (q.is_cuda()) return at::scaled_dot_product_attention(q, k, v);
#endif
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  return at::matmul(at::softmax(at::matmul(q, k.transpose(2, 3)) * scale, -1), v);
}

}  // namespace

AttentionShape AttentionShape::parse(std::string_view text) {
  AttentionShape shape;
  const auto colon = text.find(':');
  const bool good = colon != std::string_view::npos &&
                    parse_pair(text.substr(0, colon), shape.rows, shape.cols) &&
                    parse_pair(text.substr(colon + 1), shape.images, shape.heads) &&
                    shape.rows * shape.cols <= kMostTokens;
  if (!good) {
    throw Error("shape \"" + std::string(text) +
                "\" is not understood; write ROWSxCOLS:IMAGESxHEADS, such as 8x8:32x6");
  }
  return shape;
}

std::string AttentionShape::to_string() const {
  const auto pair = [](std::int64_t a, std::int64_t b) {
    return std::to_string(a) + "x" + std::to_string(b);
  };
  return pair(rows, cols) + ":" + pair(images, heads);
}

double AttentionCase::plain_operations() const {
  const double product = 2.0 * static_cast<double>(shape.images * shape.heads) *
                         static_cast<double>(shape.tokens()) * static_cast<double>(shape.tokens()) *
                         static_cast<double>(head_size);
  return product * (backward ? 7 : 2);
}

double AttentionCase::plain_bytes() const {
  const double element = dtype == "float32" ? 4 : 2;
  const double tensor = element * static_cast<double>(shape.images * shape.heads) *
                        static_cast<double>(shape.tokens()) * static_cast<double>(head_size);
  // q, k, v and out; backward those again with dout, dq, dk and dv.
  return tensor * (backward ? 12 : 4);
}

double AttentionCase::reference_bytes() const {
  const auto heads = static_cast<double>(shape.images * shape.heads);
  const auto tokens = static_cast<double>(shape.tokens());
  const auto line = static_cast<double>(shape.rows + shape.cols);
  const double squares = 10 * tokens * tokens;
  const double products = 3 * tokens * line * static_cast<double>(head_size);
  return 4 * heads * (squares + products) * (backward ? 1.0 : 0.5);
}

at::ScalarType scalar_type_named(const std::string& dtype) {
  return dtype == "bfloat16" ? at::kBFloat16 : dtype == "float16" ? at::kHalf : at::kFloat;
}

AttentionRunner::AttentionRunner(const AttentionCase& wanted)
    : case_(wanted), parameters_(std::make_unique<torch::nn::Module>()) {
  const AttentionShape& s = case_.shape;
  at::manual_seed(0);
  const c10::Device device(case_.device);
  const auto tokens = [&] {
    return at::randn({s.images, s.heads, s.tokens(), case_.head_size},
                     at::device(device).dtype(at::kFloat))
        .to(scalar_type_named(case_.dtype));
  };
  q_ = tokens().requires_grad_(case_.backward);
  k_ = tokens().requires_grad_(case_.backward);
  v_ = tokens().requires_grad_(case_.backward);
  dout_ = tokens();
  std::set<std::string> decayed;
  nn::ParameterScope scope(*parameters_, {}, decayed);
  encoding_ = nn::make_encoding(case_.encoding,
                                {s.heads * case_.head_size, s.heads, s.rows, s.cols, 0}, scope);
  layer_ = encoding_->make_layer(scope);
  parameters_->to(device);
  leaves_ = parameters_->parameters();
  leaves_.insert(leaves_.begin(), {q_, k_, v_});
}

AttentionRunner::~AttentionRunner() = default;

at::Tensor AttentionRunner::forward(AttentionPath path) const {
  if (path == AttentionPath::plain) return plain_attention(q_, k_, v_);
  return layer_->attend(q_, k_, v_, {case_.shape.rows, case_.shape.cols, 0});
}

void AttentionRunner::run(AttentionPath path) {
  std::unique_ptr<ops::ReferenceGuard> guard;
  if (path == AttentionPath::reference) guard = std::make_unique<ops::ReferenceGuard>();
  gradients_.clear();
  if (!case_.backward) {
    const at::NoGradGuard off;
    forward(path);
  } else {
    gradients_ = torch::autograd::grad({forward(path)}, leaves_, {dout_}, /*retain_graph=*/false,
                                       /*create_graph=*/false, /*allow_unused=*/true);
  }
}

}  // namespace sape2::cli
