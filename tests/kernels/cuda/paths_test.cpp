// Small problems through every attention kernel: few enough to be run under compute-sanitizer.
#include "attention_checks.h"

namespace sape2::kernels::test {
namespace {

struct Grid {
  std::int64_t rows, cols, prefix, head_size;
};

enum class Kind {
  plain,
  given_direct,
  given_distance,
  direct,
  distance,
  direct_pair,
  distance_pair
};

Problem problem_of(const Grid& grid, Kind kind, Random& random) {
  Problem p;
  auto& s = p.shape;
  s = {1, 2, grid.rows, grid.cols, grid.prefix, grid.head_size};
  p.has_bias = kind != Kind::plain;
  p.has_tables = kind != Kind::given_direct && kind != Kind::given_distance;
  const bool direct =
      kind == Kind::given_direct || kind == Kind::direct || kind == Kind::direct_pair;
  const bool pair = kind == Kind::direct_pair || kind == Kind::distance_pair;
  p.form = direct ? Form::direct : Form::distance;
  p.span = direct ? Span::between : Span::suffix;
  p.source = pair ? Source::qk : Source::k;
  p.inside = !direct;
  const auto longest = std::max(s.rows, s.cols);
  p.positions = direct ? 2 * longest - 1 : longest + 1;
  p.scale = 1 / std::sqrt(double(s.head_size));
  const std::int64_t tensor = s.images * s.heads * s.tokens() * s.head_size;
  for (Numbers* numbers : {&p.q, &p.k, &p.v, &p.dout}) *numbers = random.normal(tensor, 1);
  p.gain = random.normal(s.heads, 1);
  p.has_gain = !p.has_tables;
  if (!p.has_gain) p.gain.assign(s.heads, 1);
  p.gate_scale = random.normal(s.heads, 0.3);
  p.gate_offset = random.normal(s.heads, 1);
  for (int axis = 0; axis < 2; ++axis) {
    for (int set = 0; set < p.sets(); ++set)
      p.tables[set][axis] = random.normal(p.positions * s.head_size, 0.2);
    p.vectors[axis] =
        random.normal(p.sets() * s.images * s.heads * s.patches() * (axis ? s.rows : s.cols), 1);
  }
  return p;
}

/// ‖some − exact‖ / ‖exact‖.
double relative_error(const Numbers& some, const Numbers& exact) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    error += (some[i] - exact[i]) * (some[i] - exact[i]);
    size += exact[i] * exact[i];
  }
  return std::sqrt(error / size);
}

class CudaPaths : public GpuTest {};

// In 16 bits the first seven run one block per head, by a kernel each, the others in tiles:
// streamed with lines padded to 16, 32, 48 and 64, whole grids among them, with a wide line, with
// wide heads, and with heads of no compiled size.
TEST_P(CudaPaths, EveryKernel) {
  Random random(11);
  const bool is_wide = GetParam() == DType::float32;
  // Where a position is as near to an integer as float32 can tell, one slope is another: that is
  // what gradients that go through positions are given more for than rounding takes.
  const double most = is_wide ? 1e-4 : 4e-2, most_by_slopes = is_wide ? 1e-3 : 4e-2;
  for (const Grid& grid : {Grid{5, 6, 1, 16},
                           {7, 7, 0, 32},
                           {8, 8, 0, 64},
                           {10, 10, 1, 32},
                           {13, 13, 1, 32},
                           {13, 13, 1, 64},
                           {14, 14, 0, 64},
                           {20, 14, 1, 64},
                           {17, 18, 1, 64},
                           {6, 32, 0, 64},
                           {5, 40, 0, 64},
                           {3, 64, 0, 64},
                           {3, 64, 1, 64},
                           {3, 90, 0, 32},
                           {9, 17, 2, 128},
                           {9, 17, 0, 24}})
    for (const Kind kind : {Kind::plain, Kind::given_direct, Kind::given_distance, Kind::direct,
                            Kind::distance, Kind::direct_pair, Kind::distance_pair}) {
      SCOPED_TRACE(testing::Message() << grid.rows << "x" << grid.cols << " head " << grid.head_size
                                      << " kind " << static_cast<int>(kind));
      const Problem p = rounded_problem(problem_of(grid, kind, random), GetParam());
      const Solution ours = run_on_gpu(p, GetParam(), /*packed=*/false), exact = solve(p);
      EXPECT_LE(relative_error(ours.out, exact.out), most);
      EXPECT_LE(relative_error(ours.dq, exact.dq), most_by_slopes);
      EXPECT_LE(relative_error(ours.dk, exact.dk), most_by_slopes);
      EXPECT_LE(relative_error(ours.dv, exact.dv), most);
    }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaPaths, all_types(), type_name);

}  // namespace
}  // namespace sape2::kernels::test
