// The bias over both paths, against a loop over patches that shares no code with the operators.
#include "sape2/ops/gates.h"
#include "sape2/ops/inspect.h"
#include "sape2/ops/ops.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sape2::testing {
namespace {

constexpr int64_t kImages = 2, kHeads = 3, kHeadSize = 4;
const ops::Grid kGrid{3, 4, 2};
constexpr int64_t kTableRows = 5;  // shorter than the grid: positions clamp

struct Problem {
  explicit Problem(const std::string& mode_in) : mode(mode_in) {
    const auto random = [](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); };
    q = random({kImages, kHeads, kGrid.tokens(), kHeadSize});
    k = random(q.sizes());
    v = random(q.sizes());
    ex = random({kTableRows, kHeadSize});
    ey = random({kTableRows, kHeadSize});
    gate_scale = random({kHeads});
    gate_offset = random({kHeads});
    gain = random({kHeads});
  }
  ops::VectorOptions vectors() const { return {mode, "between", gate_scale, gate_offset}; }
  at::Tensor attend() const {
    return ops::sape2_attention(q, k, v, ex, ey, kGrid, vectors(), "paths", bias_options());
  }
  ops::BiasOptions bias_options() const {
    return {.scale = 0.6, .gain = gain, .bias_inside = false};
  }

  std::string mode;
  at::Tensor q, k, v, ex, ey, gate_scale, gate_offset, gain;
};

struct Place {
  int64_t y, x;
};

int64_t token(Place place) {
  return kGrid.prefix + place.y * kGrid.cols + place.x;
}

double dot_product(const at::Tensor& a, const at::Tensor& b) {
  double sum = 0;
  for (int64_t c = 0; c < kHeadSize; ++c) sum += a[c].item<double>() * b[c].item<double>();
  return sum;
}

// What patch `from` sees at patch `to`, which stands in its row or in its column: the table at the
// signed sum of the gates between the two.
double leg(const Problem& p, int64_t image, int64_t head, Place from, Place to, bool along_x) {
  const at::Tensor q = p.q[image][head][token(from)];
  const int64_t start = along_x ? from.x : from.y, end = along_x ? to.x : to.y;
  const int64_t step = end > start ? 1 : -1;
  double position = 0;
  for (int64_t j = start; j != end;) {
    j += step;
    const Place between = along_x ? Place{from.y, j} : Place{j, from.x};
    const double product = dot_product(q, p.k[image][head][token(between)]);
    const double gate = 1 / (1 + std::exp(-(p.gate_scale[head].item<double>() * product +
                                            p.gate_offset[head].item<double>())));
    position += static_cast<double>(step) * gate;
  }
  const double last = (kTableRows - 1) / 2.0;
  position = std::min(std::max(position, -last), last) + last;
  const auto below = static_cast<int64_t>(std::floor(position));
  const auto above = static_cast<int64_t>(std::ceil(position));
  const double weight = position - std::floor(position);
  const at::Tensor& table = along_x ? p.ex : p.ey;
  const at::Tensor a = (p.mode == "q" ? p.q : p.k)[image][head][token(from)];
  return weight * dot_product(a, table[above]) + (1 - weight) * dot_product(a, table[below]);
}

// Along i's row to n's column, then along n's column; along i's column to n's row, then along n's
// row.
double four_legs(const Problem& p, int64_t image, int64_t head, Place i, Place n) {
  return (leg(p, image, head, i, {i.y, n.x}, true) + leg(p, image, head, n, {i.y, n.x}, false) +
          leg(p, image, head, i, {n.y, i.x}, false) + leg(p, image, head, n, {n.y, i.x}, true)) /
         2;
}

at::Tensor slow_bias(const Problem& p) {
  at::Tensor bias = at::zeros({kImages, kHeads, kGrid.tokens(), kGrid.tokens()}, at::kDouble);
  for (int64_t image = 0; image < kImages; ++image)
    for (int64_t head = 0; head < kHeads; ++head)
      for (int64_t i = 0; i < kGrid.patches(); ++i)
        for (int64_t n = 0; n < kGrid.patches(); ++n) {
          const Place a{i / kGrid.cols, i % kGrid.cols}, b{n / kGrid.cols, n % kGrid.cols};
          bias[image][head][token(a)][token(b)] = four_legs(p, image, head, a, b);
        }
  return bias;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(Paths, BiasAndAttentionAreThoseOfTheLoop) {
  at::manual_seed(21);
  for (const std::string mode : {"q", "k"}) {
    const Problem p(mode);
    const at::Tensor expected = slow_bias(p);
    const at::Tensor bias = ops::sape2_bias(p.q, p.k, p.ex, p.ey, kGrid, p.vectors(), "paths");
    EXPECT_LT(difference(bias, expected), 1e-12) << mode;
    const at::Tensor logits =
        0.6 * at::matmul(p.q, p.k.transpose(-1, -2)) + p.gain.view({-1, 1, 1}) * expected;
    EXPECT_LT(difference(p.attend(), at::matmul(logits.softmax(-1), p.v)), 1e-12) << mode;
  }
}

TEST(Paths, ModeQkAddsBothBiases) {
  at::manual_seed(22);
  const Problem of_q("q"), of_k("k");
  Problem both = of_q;
  both.mode = "qk";
  both.ex = at::stack({of_q.ex, of_k.ex});
  both.ey = at::stack({of_q.ey, of_k.ey});
  Problem k_tables = of_q;
  k_tables.mode = "k";
  k_tables.ex = of_k.ex;
  k_tables.ey = of_k.ey;
  const at::Tensor bias =
      ops::sape2_bias(both.q, both.k, both.ex, both.ey, kGrid, both.vectors(), "paths");
  EXPECT_LT(difference(bias, slow_bias(of_q) + slow_bias(k_tables)), 1e-12);
}

TEST(Paths, BiasIsTheSameBothWays) {
  at::manual_seed(23);
  const Problem p("k");
  const at::Tensor bias = ops::sape2_bias(p.q, p.k, p.ex, p.ey, kGrid, p.vectors(), "paths");
  EXPECT_LT(difference(bias, bias.transpose(-1, -2)), 1e-12);
}

TEST(Paths, InspectionAndGivenGatesAgreeWithTheOperator) {
  at::manual_seed(24);
  const Problem p("k");
  const ops::PatchList chosen{0, 5, 11};
  const ops::AttentionRows rows = ops::sape2_attention_rows(p.q, p.k, p.ex, p.ey, kGrid, chosen,
                                                            p.vectors(), "paths", p.bias_options());
  const at::Tensor expected = slow_bias(p);
  for (size_t r = 0; r < chosen.size(); ++r) {
    const at::Tensor row =
        expected.select(2, kGrid.prefix + chosen[r]).narrow(-1, kGrid.prefix, kGrid.patches());
    EXPECT_LT(difference(rows.bias.select(2, static_cast<int64_t>(r)), row), 1e-12) << chosen[r];
  }
  EXPECT_LT(difference(rows.x.bias + rows.y.bias, rows.bias), 1e-12);
  EXPECT_FALSE(rows.is_distance);
  const ops::Gates gates = ops::sape2_gates(p.q, p.k, kGrid, p.vectors());
  EXPECT_LT(difference(ops::sape2_attention_with_gates(p.q, p.k, p.v, p.ex, p.ey, kGrid, gates,
                                                       p.vectors(), "paths", p.bias_options()),
                       p.attend()),
            1e-12);
}

// Stage 1 runs on the fused kernels.
TEST(Paths, FloatAgreesWithDouble) {
  at::manual_seed(25);
  const Problem p("k");
  Problem single = p;
  for (at::Tensor* tensor : {&single.q, &single.k, &single.v, &single.ex, &single.ey,
                             &single.gate_scale, &single.gate_offset, &single.gain}) {
    *tensor = tensor->to(at::kFloat).requires_grad_();
  }
  Problem wide = p;
  for (at::Tensor* tensor : {&wide.q, &wide.k, &wide.v, &wide.ex, &wide.ey, &wide.gate_scale,
                             &wide.gate_offset, &wide.gain}) {
    *tensor = tensor->to(at::kFloat).to(at::kDouble).requires_grad_();
  }
  const at::Tensor of_single = single.attend(), of_wide = wide.attend();
  EXPECT_LT(difference(of_single, of_wide), 1e-5);
  of_single.square().sum().backward();
  of_wide.square().sum().backward();
  EXPECT_LT(difference(single.q.grad(), wide.q.grad()), 1e-4);
  EXPECT_LT(difference(single.k.grad(), wide.k.grad()), 1e-4);
  EXPECT_LT(difference(single.ex.grad(), wide.ex.grad()), 1e-4);
  EXPECT_LT(difference(single.gate_scale.grad(), wide.gate_scale.grad()), 1e-4);
}

}  // namespace
}  // namespace sape2::testing
