#include "attention_checks.h"

#include <array>
#include <cmath>

namespace sape2::kernels::test {

Problem filled(Problem p, Random& random, double spread) {
  const auto& s = p.shape;
  const std::int64_t tensor = s.images * s.heads * s.tokens() * s.head_size;
  p.q = random.normal(tensor, spread);
  p.k = random.normal(tensor, spread);
  p.v = random.normal(tensor, 1);
  p.dout = random.normal(tensor, 1);
  p.gain = random.normal(s.heads, 1);
  if (!p.has_gain) p.gain.assign(s.heads, 1);
  p.gate_scale = random.normal(s.heads, 0.3);
  p.gate_offset = random.normal(s.heads, 1);
  if (p.scale == 1) p.scale = 1 / std::sqrt(double(s.head_size));
  for (int set = 0; set < p.sets(); ++set)
    for (int axis = 0; axis < 2; ++axis)
      p.tables[set][axis] =
          random.normal((p.tables_per_head ? s.heads : 1) * p.positions * s.head_size, 0.2);
  for (int axis = 0; axis < 2; ++axis)
    p.vectors[axis] =
        random.normal(p.sets() * s.images * s.heads * s.patches() * (axis ? s.rows : s.cols), 1);
  return p;
}

std::string described(const Problem& p) {
  const auto& s = p.shape;
  return std::to_string(s.images) + "x" + std::to_string(s.heads) + " " + std::to_string(s.rows) +
         "x" + std::to_string(s.cols) + "+" + std::to_string(s.prefix) + " d" +
         std::to_string(s.head_size) + " M" + std::to_string(p.positions) +
         (p.has_bias ? p.has_tables ? " sape2" : " given" : " plain") +
         (p.form == Form::direct ? " direct" : " distance") +
         (p.source == Source::q   ? " q"
          : p.source == Source::k ? " k"
                                  : " qk") +
         (p.span == Span::suffix ? " suffix" : " between") + (p.inside ? " inside" : " outside") +
         (p.has_gain ? "" : " no gain") + (p.tables_per_head ? " own tables" : "");
}

double tolerance(DType type) {
  return type == DType::float32 ? 2e-5 : type == DType::bfloat16 ? 2e-2 : 3e-3;
}

double norm(const Numbers& numbers) {
  double sum = 0;
  for (const double x : numbers) sum += x * x;
  return std::sqrt(sum);
}

double error_norm(const Numbers& ours, const Numbers& exact) {
  Numbers difference(exact.size());
  for (std::size_t i = 0; i < exact.size(); ++i) difference[i] = ours[i] - exact[i];
  return norm(difference);
}

void expect_near(const char* name, const Numbers& ours, const Numbers& exact, double most,
                 double terms) {
  ASSERT_EQ(ours.size(), exact.size()) << name;
  const double error = error_norm(ours, exact), size = std::max(norm(exact), terms);
  EXPECT_TRUE(error <= most * size)
      << name << ": error " << error << " of " << size << ", at most " << most << " of it";
}

void expect_near(const Solution& ours, const Problem& problem, DType type) {
  const auto exact = solve(problem);
  const double most = tolerance(type);
  expect_near("out", ours.out, exact.out, most);
  expect_near("lse", ours.lse, exact.lse, most);
  // Where all keys or all logits are alike, gradients cancel to rounding.
  const double rounding = 0.1 * norm(exact.dv);
  expect_near("dq", ours.dq, exact.dq, 2 * most, rounding);
  expect_near("dk", ours.dk, exact.dk, 2 * most, rounding);
  expect_near("dv", ours.dv, exact.dv, most);
  if (!problem.has_bias) return;
  // One token alone has no gradient of the gain at all: what is left is the rounding, in float32
  // for every type, of a difference of numbers of size 1.
  if (problem.has_gain)
    expect_near("dgain", ours.dgain, exact.dgain, most, std::max(exact.dgain_terms, 3e-6 / most));
  if (!problem.has_tables) {
    expect_near("dx", ours.dvectors[0], exact.dvectors[0], 2 * most, rounding);
    expect_near("dy", ours.dvectors[1], exact.dvectors[1], 2 * most, rounding);
    return;
  }
  for (int set = 0; set < problem.sets(); ++set) {
    expect_near("dtable x", ours.dtables[set][0], exact.dtables[set][0], 3 * most, 10 * rounding);
    expect_near("dtable y", ours.dtables[set][1], exact.dtables[set][1], 3 * most, 10 * rounding);
  }
  expect_near("dgate_scale", ours.dgate_scale, exact.dgate_scale, 20 * most, 10 * rounding);
  expect_near("dgate_offset", ours.dgate_offset, exact.dgate_offset, 20 * most, 10 * rounding);
}

void expect_right(const Problem& given, DType type, bool packed) {
  const auto problem = rounded_problem(given, type);
  SCOPED_TRACE(described(problem));
  const auto ours = run_on_gpu(problem, type, packed);
  expect_near(ours, problem, type);
  if (!problem.has_bias || !problem.has_tables) return;

  // Once more, to the last bit, with vectors made again instead of kept.
  const auto again = run_on_gpu(problem, type, packed, /*keeps_vectors=*/false);
  EXPECT_EQ(ours.out, again.out);
  EXPECT_EQ(ours.dq, again.dq);
  EXPECT_EQ(ours.dk, again.dk);
  EXPECT_EQ(ours.dv, again.dv);
  EXPECT_EQ(ours.dgain, again.dgain);
  EXPECT_EQ(ours.dgate_scale, again.dgate_scale);
  EXPECT_EQ(ours.dgate_offset, again.dgate_offset);
  for (int set = 0; set < problem.sets(); ++set)
    for (int axis = 0; axis < 2; ++axis)
      EXPECT_EQ(ours.dtables[set][axis], again.dtables[set][axis]);
}

std::int64_t default_positions(const Problem& p) {
  const auto longest = std::max(p.shape.rows, p.shape.cols);
  return p.span == Span::suffix ? longest + 1 : 2 * longest - 1;
}

std::string type_name(const testing::TestParamInfo<DType>& info) {
  return info.param == DType::float32    ? "float32"
         : info.param == DType::bfloat16 ? "bfloat16"
                                         : "float16";
}

}  // namespace sape2::kernels::test
