// The rule of every fused path: its error against float64 is at most twice that of the plain
// formula in the same precision, over random shapes, modes, spans, forms, prefixes and scales.
#include "sape2/ops/ops.h"

#include "support/plain_formula.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>

namespace sape2::testing {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

struct Case {
  ops::Grid grid;
  ops::VectorOptions vectors;
  ops::BiasOptions bias;
  std::string form;
  bool own_tables = false, given_gates = false, given_gain = false;
  double magnitude = 1;
  Tensors inputs;  // float64

  std::string name() const {
    std::string text =
        vectors.mode + " " + vectors.span + " " + form + " grid " + std::to_string(grid.rows) +
        "x" + std::to_string(grid.cols) + "+" + std::to_string(grid.prefix) + " d " +
        std::to_string(inputs.at("q").size(3)) + " M " + std::to_string(inputs.at("ex").size(-2)) +
        " |q| " + std::to_string(magnitude);
    return text + (bias.bias_inside ? " inside" : " outside") + (own_tables ? " own tables" : "");
  }
};

/// A case as varied as the operators allow.
Case random_case(std::mt19937& draw, double magnitude) {
  const auto pick = [&](auto choices) {
    return *(choices.begin() + std::uniform_int_distribution<size_t>(0, choices.size() - 1)(draw));
  };
  const auto flip = [&] { return pick(std::initializer_list<bool>{false, true}); };
  Case c;
  c.magnitude = magnitude;
  c.grid = {pick(std::initializer_list<int64_t>{1, 2, 4, 5, 8, 11}),
            pick(std::initializer_list<int64_t>{1, 3, 4, 7, 8, 13}),
            pick(std::initializer_list<int64_t>{0, 0, 1, 3})};
  c.vectors.mode = pick(std::initializer_list<const char*>{"q", "k", "qk"});
  c.vectors.span = pick(std::initializer_list<const char*>{"suffix", "between"});
  c.form = pick(std::initializer_list<const char*>{"distance", "direct"});
  c.bias.bias_inside = flip();
  c.own_tables = flip(), c.given_gates = flip(), c.given_gain = flip();
  const int64_t images = 2, heads = 2;
  const int64_t d = pick(std::initializer_list<int64_t>{3, 8, 16, 24, 32, 64});
  const int64_t longest = std::max(c.grid.rows, c.grid.cols);
  int64_t table_rows = c.vectors.span == "suffix" ? longest + 1 : 2 * longest - 1;
  if (flip()) table_rows = std::max<int64_t>(table_rows - 2, c.vectors.span == "suffix" ? 2 : 1);

  const auto random = [](at::IntArrayRef shape) { return at::randn(shape, at::kDouble); };
  for (const char* name : {"q", "k"})
    c.inputs[name] = magnitude * random({images, heads, c.grid.tokens(), d});
  c.inputs["v"] = random({images, heads, c.grid.tokens(), d});
  std::vector<int64_t> shape = {table_rows, d};
  if (c.own_tables) shape.insert(shape.begin(), heads);
  if (c.vectors.mode == "qk") shape.insert(shape.begin(), 2);
  c.inputs["ex"] = 0.3 * random(shape);
  c.inputs["ey"] = 0.3 * random(shape);
  if (c.given_gates) {
    c.inputs["gate_scale"] = (1 + 0.3 * random({heads})) / std::sqrt(double(d));
    c.inputs["gate_offset"] = 1 + random({heads});
  }
  if (c.given_gain) c.inputs["gain"] = random({heads});
  c.inputs["dout"] = random(c.inputs["q"].sizes());
  return c;
}

enum class Path { op, reference, plain };

/// The output and all gradients, with inputs first rounded to `rounding` and then computed in
/// `type`.
Tensors run(const Case& c, at::ScalarType rounding, at::ScalarType type, Path path) {
  Tensors leaves;
  for (const auto& [name, value] : c.inputs)
    leaves[name] = value.to(rounding).to(type).detach().requires_grad_(name != "dout");
  auto vectors = c.vectors;
  auto bias = c.bias;
  if (c.given_gates)
    vectors.gate_scale = leaves["gate_scale"], vectors.gate_offset = leaves["gate_offset"];
  if (c.given_gain) bias.gain = leaves["gain"];
  const auto compute = [&]() -> Tensors {
    const auto call = [&](const auto& attention) {
      return attention(leaves["q"], leaves["k"], leaves["v"], leaves["ex"], leaves["ey"], c.grid,
                       vectors, c.form, bias);
    };
    const PlainFormula formula(type);
    const auto out = path == Path::plain
                         ? call([&](const auto&... x) { return formula.sape2_attention(x...); })
                         : call([](const auto&... x) { return ops::sape2_attention(x...); });
    out.backward(leaves["dout"]);
    Tensors results = {{"out", out.detach()}};
    for (const auto& [name, leaf] : leaves)
      if (name != "dout") results["d" + name] = leaf.grad();
    return results;
  };
  if (path != Path::reference) return compute();
  const ops::ReferenceGuard guard;
  return compute();
}

/// Relative errors over many cases. Those of tensors are added up as squares. A gain or gate is one
/// number a head, whose error is as often lucky as not, for either path: there the ratio counts, as
/// the geometric mean over cases.
class Errors {
 public:
  explicit Errors(double floor) : floor_(floor) {}

  void add(const Tensors& fused, const Tensors& plain, const Tensors& exact) {
    for (const auto& [name, value] : exact) {
      // Saturated softmaxes have gradients of nearly nothing; below a tenth of the unit-sized
      // inputs, errors count as absolute.
      const double norm = value.square().sum().item<double>() + 1e-2 * double(value.numel());
      const auto squared = [&](const at::Tensor& result) {
        return (result.to(at::kDouble) - value).square().sum().item<double>() / norm;
      };
      auto& sums = sums_[name];
      sums.fused += squared(fused.at(name));
      sums.plain += squared(plain.at(name));
      sums.log_ratio += std::log((std::sqrt(squared(fused.at(name))) + floor_) /
                                 (std::sqrt(squared(plain.at(name))) + floor_));
      sums.is_number = value.dim() <= 1;
      ++sums.cases;
    }
  }

  void expect_at_most_twice(const std::string& where) const {
    for (const auto& [name, sums] : sums_) {
      if (sums.is_number) {
        EXPECT_LE(std::exp(sums.log_ratio / sums.cases), 2) << name << ", " << where;
      } else {
        EXPECT_LE(std::sqrt(sums.fused), 2 * std::sqrt(sums.plain) + floor_)
            << name << ", " << where;
      }
    }
  }

 private:
  struct Sums {
    double fused = 0, plain = 0, log_ratio = 0;
    int cases = 0;
    bool is_number = false;
  };
  double floor_;
  std::map<std::string, Sums> sums_;
};

void hold_to_the_rule(at::ScalarType type, double floor) {
  std::mt19937 draw(17);
  at::manual_seed(17);
  for (const double magnitude : {1e-3, 0.1, 1.0, 5.0, 30.0}) {
    Errors errors(floor);
    for (int round = 0; round < 32; ++round) {
      const auto c = random_case(draw, magnitude);
      const auto exact = run(c, type, at::kDouble, Path::reference);
      errors.add(run(c, type, type, Path::op), run(c, type, type, Path::plain), exact);
    }
    errors.expect_at_most_twice("|q| " + std::to_string(magnitude));
  }
}

TEST(Precision, Float32IsWithinTwiceThePlainFormula) {
  hold_to_the_rule(at::kFloat, 1e-7);
}

TEST(Precision, Bfloat16IsWithinTwiceThePlainFormula) {
  hold_to_the_rule(at::kBFloat16, 1e-4);
}

// Positions are sums of up to a thousand gates here; summed plainly in float32 they would lose the
// digits that the formula's cumulative sum keeps.
TEST(Precision, LongLinesKeepTheirDigits) {
  using Attend = std::function<at::Tensor(const Tensors&)>;
  const int64_t tokens = 1024, d = 16;
  const std::map<std::string, Attend> all{
      {"CoPE",
       [](const Tensors& t) {
         return ops::cope_attention(t.at("q"), t.at("k"), t.at("v"), t.at("e"));
       }},
      {"one row",
       [](const Tensors& t) {
         return ops::sape2_attention(t.at("q"), t.at("k"), t.at("v"), t.at("e"), t.at("e"),
                                     {1, tokens, 0}, {}, "direct");
       }},
      {"one column", [](const Tensors& t) {
         return ops::sape2_attention(t.at("q"), t.at("k"), t.at("v"), t.at("e"), t.at("e"),
                                     {tokens, 1, 0}, {}, "direct");
       }}};
  for (const auto& [name, attend] : all) {
    for (int seed = 0; seed < 2; ++seed) {
      at::manual_seed(seed);
      Tensors narrow, wide;
      for (const char* input : {"q", "k", "v"}) narrow[input] = at::randn({1, 1, tokens, d});
      narrow["e"] = at::randn({tokens + 1, d});
      for (const auto& [input, tensor] : narrow) wide[input] = tensor.to(at::kDouble);
      const at::Tensor exact = attend(wide), fused = attend(narrow);
      const ops::ReferenceGuard formula;
      const auto error = [&](const at::Tensor& out) {
        return (out.to(at::kDouble) - exact).norm().item<double>() / exact.norm().item<double>();
      };
      EXPECT_LE(error(fused), 2 * error(attend(narrow)) + 1e-7) << name << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace sape2::testing
