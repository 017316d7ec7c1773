// The CUDA kernels against plain float64 loops, over many shapes and settings.
#include "device.h"
#include "numbers.h"
#include "runner.h"

#include <gtest/gtest.h>

namespace sape2::kernels::test {
namespace {

class CudaAttention : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "there is no GPU here";
  }
};

/// Fills a problem whose shape and settings are chosen.
Problem filled(Problem p, Random& random, double spread = 1) {
  const auto& s = p.shape;
  const std::int64_t tensor = s.images * s.heads * s.tokens() * s.head_size;
  p.q = random.normal(tensor, spread);
  p.k = random.normal(tensor, spread);
  p.v = random.normal(tensor, 1);
  p.dout = random.normal(tensor, 1);
  p.gain = random.normal(s.heads, 1);
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
         (p.tables_per_head ? " own tables" : "");
}

/// float32 must come near its own rounding, 16 bits near theirs.
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

/// ‖ours − exact‖ ≤ most · ‖exact‖, or · `terms` where sums cancel and that is larger.
void expect_near(const char* name, const Numbers& ours, const Numbers& exact, double most,
                 double terms = 0) {
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

TEST_P(CudaAttention, NamedSettingsAtUsualSizes) {
  Random random(1);
  for (const auto [rows, cols, head_size] : {std::array{8, 8, 64},
                                             {14, 14, 64},
                                             {16, 16, 32},
                                             {20, 17, 64},
                                             {4, 70, 128},
                                             {32, 32, 64},
                                             {24, 24, 64},
                                             {6, 48, 64},
                                             {16, 16, 64},
                                             {15, 15, 64}})
    for (const bool relative : {false, true}) {
      Problem p;
      p.shape = {1, 2, rows, cols, 0, head_size};
      p.span = relative ? Span::between : Span::suffix;
      p.form = relative ? Form::direct : Form::distance;
      p.inside = !relative;
      p.positions = default_positions(p);
      expect_right(filled(p, random), GetParam(), false);
    }
}

TEST_P(CudaAttention, GridsOfManyTilesWithPrefixTokens) {
  Random random(7);
  for (const auto [rows, cols, prefix, head_size] : {std::array{33, 9, 5, 64},
                                                     {5, 64, 1, 64},
                                                     {17, 40, 70, 32},
                                                     {4, 100, 3, 64},
                                                     {64, 8, 0, 16},
                                                     {70, 5, 0, 64},
                                                     {18, 31, 0, 64},
                                                     {3, 128, 2, 128}})
    for (const auto form : {Form::distance, Form::direct}) {
      Problem p;
      p.shape = {1, 2, rows, cols, prefix, head_size};
      p.form = form;
      p.span = random.coin() ? Span::between : Span::suffix;
      p.source = random.coin() ? Source::q : Source::k;
      p.inside = random.coin();
      p.positions = default_positions(p);
      const bool packed = random.coin();
      p = filled(p, random);
      // In float32 the long line of 70 has a position so near an integer that rounding decides its
      // slope, and lines of 128 with this head size are refused.
      if (GetParam() == DType::float32 && (rows == 70 || cols == 128)) continue;
      expect_right(p, GetParam(), packed);
    }
}

/// Padding has no weight, whatever the sign of what multiplies its scores.
TEST_P(CudaAttention, ScalesThatAreNotPositive) {
  for (const double scale : {0.0, -0.125}) {
    Random random(31);
    Problem p;
    p.shape = {1, 2, 19, 21, 1, 64};
    p.form = Form::distance;
    p.positions = default_positions(p);
    p.inside = false;
    p.scale = scale;
    expect_right(filled(p, random), GetParam(), false);
  }
}

/// Rows of the grid next to where their tiles change: padded to eights, two or one to a tile, cut
/// in two; the last tile whole, or reaching below the grid. Gains of 1 take one product, others
/// two.
TEST_P(CudaAttention, DirectGridsOfEveryWidth) {
  Random random(13);
  int round = 0;
  for (const auto [rows, cols] : {std::array{5, 17},
                                  {17, 16},
                                  {30, 11},
                                  {6, 24},
                                  {13, 31},
                                  {8, 32},
                                  {9, 32},
                                  {4, 33},
                                  {7, 48},
                                  {3, 64},
                                  {65, 17},
                                  {2, 65}})
    for (const std::int64_t prefix : {0, 1, 5}) {
      Problem p;
      p.shape = {round % 2 + 1, 2, rows, cols, prefix, round % 4 == 3 ? 32 : 64};
      p.form = Form::direct;
      p.source = std::array{Source::k, Source::q, Source::qk}[round % 3];
      p.span = Span::between;
      p.has_tables = round % 4 != 1;
      p.inside = round % 5 == 0;
      p.positions = default_positions(p);
      p = filled(p, random);
      if (round % 2 == 0) p.gain.assign(2, 1);
      expect_right(p, GetParam(), round++ % 3 == 0);
    }
}

/// Along y gradients leave for eight grid rows at once, or four: more rows than that, of every
/// width, in heads of sizes between the compiled ones.
TEST_P(CudaAttention, DirectGradientsOfManyRows) {
  Random random(19);
  for (const auto [rows, cols, prefix, head_size] : {std::array{19, 20, 0, 56},
                                                     {21, 16, 1, 64},
                                                     {43, 9, 0, 64},
                                                     {18, 30, 3, 8},
                                                     {10, 40, 0, 48},
                                                     {9, 47, 16, 40},
                                                     {9, 55, 1, 64},
                                                     {9, 64, 0, 24},
                                                     {10, 66, 2, 64}}) {
    Problem p;
    p.shape = {1, 2, rows, cols, prefix, head_size};
    p.form = Form::direct;
    p.has_tables = false;
    expect_right(filled(p, random), GetParam(), prefix == 0);
  }
}

TEST_P(CudaAttention, RandomShapesAndSettings) {
  Random random(2);
  for (int round = 0; round < 60; ++round) {
    Problem p;
    const std::int64_t sizes[] = {1, 8, 16, 24, 32, 33, 64, 80, 128};
    const std::int64_t longest = round % 10 == 9 ? 40 : 14;
    p.shape = {random.between(1, 2),
               random.between(1, 3),
               random.between(1, longest),
               random.between(1, longest),
               random.between(0, 3) == 0 ? random.between(1, 9) : 0,
               sizes[random.between(0, 8)]};
    p.has_bias = random.between(0, 7) > 0;
    p.has_tables = random.between(0, 3) > 0;
    p.form = random.coin() ? Form::direct : Form::distance;
    p.source = random.between(0, 2) == 0 ? Source::qk : random.coin() ? Source::q : Source::k;
    p.span = random.coin() ? Span::suffix : Span::between;
    p.inside = random.coin();
    p.tables_per_head = random.coin();
    p.positions = default_positions(p);
    if (random.coin())
      p.positions = p.span == Span::suffix ? random.between(2, 9) : 2 * random.between(0, 5) + 1;
    expect_right(filled(p, random), GetParam(), random.coin());
  }
}

/// In 16 bits these run a head a block, at the edges of what that takes: one token, one line, more
/// rows than 16, all slots used, class and register tokens, several images a block, and sizes next
/// to the last that fit.
TEST_P(CudaAttention, SmallGridsAtTheirEdges) {
  Random random(7);
  struct Edge {
    std::int64_t images, heads, rows, cols, prefix, head_size;
  };
  int round = 0;
  for (const Edge& e : {Edge{1, 1, 1, 1, 0, 16},
                        {2, 1, 1, 16, 0, 64},
                        {1, 2, 11, 1, 5, 32},
                        {1, 1, 32, 8, 0, 32},
                        {1, 1, 31, 7, 3, 16},
                        {1, 2, 16, 16, 0, 16},
                        {1, 1, 16, 16, 0, 64},
                        {2, 1, 14, 14, 1, 64},
                        {1, 1, 9, 9, 4, 64},
                        {300, 3, 3, 2, 1, 16},
                        {1, 1, 8, 17, 0, 64},
                        {1, 1, 33, 3, 0, 16}})
    for (const auto form : {Form::direct, Form::distance})
      for (const auto source : {Source::q, Source::k, Source::qk}) {
        Problem p;
        p.shape = {e.images, e.heads, e.rows, e.cols, e.prefix, e.head_size};
        p.form = form;
        p.source = source;
        p.span = round++ % 2 ? Span::suffix : Span::between;
        p.inside = round % 3 == 0;
        p.tables_per_head = round % 4 == 0;
        p.positions = default_positions(p);
        expect_right(filled(p, random), GetParam(), round % 5 == 0);
      }
}

/// Square grids for which 16-bit kernels know nearly all sizes, with tables short and long, several
/// images a block, and views of a packed tensor.
TEST_P(CudaAttention, UsualSquareGrids) {
  Random random(11);
  int round = 0;
  for (const std::int64_t side : {7, 8, 14})
    for (const std::int64_t head_size : {16, 32, 64, 56})
      for (const bool relative : {false, true}) {
        Problem p;
        p.shape = {side == 14 ? 2 : 3, 2, side, side, 0, head_size};
        if (side == 8 && head_size == 16) p.shape.images = 450;
        p.span = relative ? Span::between : Span::suffix;
        p.form = relative ? Form::direct : Form::distance;
        p.source = round++ % 3 == 0 ? Source::q : Source::k;
        p.inside = round % 2 == 0;
        p.tables_per_head = round % 4 == 0;
        p.positions = default_positions(p);
        if (round % 5 == 0) p.positions = relative ? side - side % 2 - 1 : side / 2;
        expect_right(filled(p, random), GetParam(), round % 3 == 1);
      }
}

/// Grids for which 16-bit kernels know how long lines can be: all widths next to 8 and 16, prefix
/// tokens behind the grid (no padding beside it, or more of them than rows) and beside it, whole
/// and short tables, heads narrower than compiled, rows that are not aligned.
TEST_P(CudaAttention, CompiledGridsWithPrefixTokens) {
  Random random(17);
  int round = 0;
  for (const auto [rows, cols, prefix] :
       {std::array{5, 5, 0}, {6, 6, 1},   {7, 7, 5},   {8, 8, 1},   {8, 8, 5},   {4, 8, 3},
        {8, 6, 8},           {1, 5, 1},   {3, 7, 4},   {9, 9, 0},   {10, 10, 5}, {11, 11, 1},
        {12, 12, 1},         {13, 13, 0}, {14, 14, 1}, {14, 14, 5}, {15, 10, 2}, {16, 9, 3},
        {3, 11, 4},          {5, 16, 1},  {15, 15, 1}, {16, 16, 0}, {16, 13, 16}})
    for (const std::int64_t head_size : {16, 32, 64})
      for (const bool relative : {false, true}) {
        Problem p;
        p.shape = {++round % 5 == 0 ? 2 : 1, 2, rows, cols, prefix, head_size};
        if (round % 7 == 0) p.shape.head_size -= 8;
        p.span = relative ? Span::between : Span::suffix;
        p.form = relative ? Form::direct : Form::distance;
        p.source = round % 5 == 1 ? Source::q : Source::k;
        p.inside = round % 5 > 2;
        p.tables_per_head = round % 7 == 1;
        p.positions = default_positions(p);
        if (round % 7 > 4) p.positions = relative ? 5 : 4;
        if (round % 11 == 3) p.gap = 1;
        expect_right(filled(p, random), GetParam(), round % 5 == 2);
      }
}

/// Forward and backward may not find their rows aligned alike: where a head runs in one block, with
/// lines as long as compiled and shorter ones.
TEST_P(CudaAttention, RowsAlignedInOneDirectionOnly) {
  Random random(19);
  for (const auto [rows, cols, prefix] : {std::array{14, 14, 0}, {13, 13, 1}, {9, 16, 3}})
    for (const bool moves_together : {true, false}) {
      Problem p;
      p.shape = {1, 2, rows, cols, prefix, 64};
      p.span = Span::between;
      p.form = Form::direct;
      p.positions = default_positions(p);
      const auto problem = rounded_problem(filled(p, random), GetParam());
      SCOPED_TRACE(described(problem));
      expect_near(run_moved_on_gpu(problem, GetParam(), moves_together), problem, GetParam());
    }
}

/// Heads of 64 in tiles, for whose lines of up to 64 patches 16-bit kernels know most sizes: next
/// to what they are padded to, both spans in both forms, prefix tokens, views of a packed tensor,
/// tables that are longer, and tables that clamp.
TEST_P(CudaAttention, LongLinesAtTheirEdges) {
  Random random(13);
  int round = 0;
  for (const auto [rows, cols, prefix] : {std::array{6, 17, 0},
                                          {5, 31, 1},
                                          {4, 32, 0},
                                          {4, 33, 3},
                                          {33, 8, 0},
                                          {48, 6, 1},
                                          {3, 63, 2},
                                          {64, 5, 0},
                                          {5, 50, 1},
                                          {18, 20, 1},
                                          {16, 16, 1},
                                          {15, 16, 33},
                                          {64, 4, 0}})
    for (const auto form : {Form::direct, Form::distance})
      for (const auto span : {Span::suffix, Span::between}) {
        Problem p;
        p.shape = {round % 3 == 0 ? 2 : 1, 2, rows, cols, prefix, 64};
        p.form = form;
        p.span = span;
        p.source = round % 2 ? Source::q : Source::k;
        p.inside = round % 3 == 0;
        p.tables_per_head = round % 4 == 1;
        p.positions = default_positions(p);
        if (round % 5 == 2) p.positions += 4;
        if (round % 7 == 6) p.positions = 9;
        const bool packed = round % 3 == 1;
        ++round;
        expect_right(filled(p, random), GetParam(), packed);
      }
}

/// So many heads that a block takes several lines of each: their tables' gradients go to the other
/// block of a cluster line by line, and one line does not exist.
TEST_P(CudaAttention, SeveralLinesABlock) {
  if (GetParam() == DType::float32)
    GTEST_SKIP() << "of a million positions one lies so near an integer (15.9999991) that float32 "
                    "takes its other side";
  Random random(17);
  for (const auto form : {Form::direct, Form::distance}) {
    Problem p;
    p.shape = {50, 2, 33, 9, 0, 64};
    p.form = form;
    p.positions = default_positions(p);
    expect_right(filled(p, random), GetParam(), false);
  }
}

TEST_P(CudaAttention, EqualPatchesHaveNoNoise) {
  Random random(3);
  for (const auto [rows, cols, head_size] :
       {std::array{6, 7, 32}, {18, 19, 64}, {5, 40, 64}, {4, 64, 64}}) {
    Problem p;
    p.shape = {1, 2, rows, cols, 1, head_size};
    p.positions = default_positions(p);
    p = filled(p, random);
    const auto n = p.shape.tokens(), d = p.shape.head_size;
    for (std::int64_t head = 0; head < 2; ++head)
      for (std::int64_t token = 1; token < n; ++token)
        for (std::int64_t c = 0; c < d; ++c) {
          p.q[(head * n + token) * d + c] = p.q[(head * n + 1 + token % 2) * d + c];
          p.k[(head * n + token) * d + c] = p.k[head * n * d + c];
        }
    expect_right(p, GetParam(), false);
  }
}

TEST_P(CudaAttention, OpenGatesCountPatches) {
  Random random(4);
  for (const auto [rows, cols, head_size] : {std::array{5, 9, 16}, {9, 20, 64}})
    for (const auto form : {Form::distance, Form::direct}) {
      Problem p;
      p.shape = {2, 2, rows, cols, 0, head_size};
      p.form = form;
      p.span = Span::between;
      p.positions = default_positions(p);
      p = filled(p, random);
      p.gate_scale.assign(2, 0);
      p.gate_offset.assign(2, INFINITY);
      const auto problem = rounded_problem(p, GetParam());
      const auto ours = run_on_gpu(problem, GetParam(), true);
      const auto exact = solve(problem);
      expect_near("out", ours.out, exact.out, tolerance(GetParam()));
      expect_near("dtable", ours.dtables[0][0], exact.dtables[0][0], 3 * tolerance(GetParam()));
      for (const double x : ours.dgate_offset) EXPECT_EQ(x, 0);
    }
}

TEST_P(CudaAttention, NoImagesAndManyHeads) {
  Random random(5);
  Problem none;
  none.shape = {0, 3, 4, 4, 0, 32};
  none.positions = 5;
  EXPECT_TRUE(run_on_gpu(filled(none, random), GetParam(), false).out.empty());
  if (GetParam() != DType::bfloat16) return;
  Problem many;
  many.shape = {10001, 7, 1, 2, 0, 8};
  many.form = Form::direct;
  many.positions = 3;
  expect_right(filled(many, random), GetParam(), false);
}

/// More heads than a GPU has multiprocessors: a block takes one image after the other, and loads
/// the next while it works. The last one has, to the last bit, the results it has alone.
/// Calls use(sum of one solution, the same of another) for what is summed over images.
template <class Use>
void for_each_sum(Solution& one, const Solution& other, Use use) {
  use(one.dgain, other.dgain);
  use(one.dgate_scale, other.dgate_scale);
  use(one.dgate_offset, other.dgate_offset);
  for (int axis = 0; axis < 2; ++axis) use(one.dtables[0][axis], other.dtables[0][axis]);
}

TEST_P(CudaAttention, ImagesDoNotNoticeThoseBefore) {
  if (GetParam() == DType::float32) return;
  Random random(29);
  for (const auto [rows, cols, prefix, form] : {std::array{14, 14, 0, 0},
                                                {14, 14, 0, 1},
                                                {14, 14, 0, 2},
                                                {14, 14, 1, 1},
                                                {3, 16, 1, 1},
                                                {3, 16, 0, 2},
                                                {8, 8, 0, 1}}) {
    Problem p;
    p.shape = {4, 160, rows, cols, prefix, 64};
    p.has_bias = form != 0;
    p.form = form == 1 ? Form::direct : Form::distance;
    p.span = form == 1 ? Span::between : Span::suffix;
    p.positions = default_positions(p);
    p = rounded_problem(filled(p, random), GetParam());
    SCOPED_TRACE(described(p));
    const auto all = run_on_gpu(p, GetParam(), false);
    Solution sums;  // over images
    for (int image = 0; image < 4; ++image) {
      const auto of_image = [&](const Numbers& numbers) {
        const auto begin = numbers.begin() + numbers.size() / 4 * image;
        return Numbers(begin, begin + numbers.size() / 4);
      };
      Problem one = p;
      one.shape.images = 1;
      for (Numbers* const numbers : {&one.q, &one.k, &one.v, &one.dout})
        *numbers = of_image(*numbers);
      const auto alone = run_on_gpu(one, GetParam(), false);
      EXPECT_EQ(of_image(all.out), alone.out);
      EXPECT_EQ(of_image(all.dq), alone.dq);
      EXPECT_EQ(of_image(all.dk), alone.dk);
      EXPECT_EQ(of_image(all.dv), alone.dv);
      for_each_sum(sums, alone, [](Numbers& sum, const Numbers& term) {
        sum.resize(term.size());
        for (std::size_t i = 0; i < term.size(); ++i) sum[i] += term[i];
      });
    }
    for_each_sum(sums, all, [](const Numbers& sum, const Numbers& ours) {
      expect_near("sum over images", ours, sum, 1e-3);
    });
  }
}

TEST_P(CudaAttention, NotANumberStaysInItsImage) {
  Random random(6);
  for (const auto [rows, cols, head_size] :
       {std::array{7, 5, 32}, {10, 10, 64}, {14, 14, 64}, {9, 20, 64}, {3, 64, 64}})
    for (const auto span : {Span::suffix, Span::between}) {
      Problem p;
      p.shape = {2, 1, rows, cols, 1, head_size};
      p.span = span;
      p.form = rows == cols && span == Span::between ? Form::direct : Form::distance;
      p.positions = default_positions(p);
      p = filled(p, random);
      p.q[3 * head_size] = NAN;
      p.k[5 * head_size] = NAN;
      const auto problem = rounded_problem(p, GetParam());
      const auto ours = run_on_gpu(problem, GetParam(), false);
      const std::size_t image = p.shape.tokens() * p.shape.head_size;
      EXPECT_TRUE(std::isnan(ours.out[3 * head_size]));
      EXPECT_TRUE(std::isnan(ours.dq[3 * head_size]));
      for (std::size_t i = image; i < 2 * image; ++i) {
        ASSERT_TRUE(std::isfinite(ours.out[i]));
        ASSERT_TRUE(std::isfinite(ours.dq[i]));
        ASSERT_TRUE(std::isfinite(ours.dk[i]));
      }
    }
}

// Gradients over distances go beyond what float16 holds.
TEST_P(CudaAttention, NearlyEqualVectorsUnderLargeGradients) {
  Random random(8);
  struct Case {
    std::int64_t rows, cols, head_size;
    Source source = Source::k;
  };
  for (const auto [rows, cols, head_size, source] :
       {Case{6, 7, 32}, Case{8, 8, 64}, Case{18, 19, 64}, Case{5, 40, 64}, Case{9, 17, 128},
        Case{18, 19, 64, Source::qk}}) {
    Problem p;
    p.shape = {1, 2, rows, cols, 1, head_size};
    p.has_tables = false;
    p.source = source;
    p = filled(p, random);
    for (double& x : p.dout) x *= 1000;
    for (auto& axis : p.vectors)
      for (double& x : axis) x *= 2e-5;
    const auto problem = rounded_problem(p, GetParam());
    SCOPED_TRACE(described(problem));
    const auto ours = run_on_gpu(problem, GetParam(), false);
    for (const auto* gradients : {&ours.dq, &ours.dk, &ours.dvectors[0], &ours.dvectors[1]})
      for (const double x : *gradients) ASSERT_TRUE(std::isfinite(x));
  }
}

TEST_P(CudaAttention, InfiniteValuesStayInTheirColumn) {
  Random random(9);
  for (const auto [rows, cols] : {std::array{9, 20}, {18, 19}, {5, 40}})
    for (const std::int64_t token : {3, 100}) {
      Problem p;
      p.shape = {1, 1, rows, cols, 1, 64};
      p.positions = default_positions(p);
      p = filled(p, random);
      p.v[token * 64 + 7] = INFINITY;
      const auto problem = rounded_problem(p, GetParam());
      SCOPED_TRACE(described(problem));
      const auto ours = run_on_gpu(problem, GetParam(), false);
      for (std::size_t i = 0; i < ours.out.size(); ++i)
        ASSERT_EQ(std::isfinite(ours.out[i]), i % 64 != 7) << i;
    }
}

// Eleven bits instead of 24, and only where they were asked for.
TEST(CudaTf32, IsASwitch) {
  if (!has_gpu()) GTEST_SKIP() << "there is no GPU here";
  Random random(7);
  for (const auto form : {Form::distance, Form::direct}) {
    Problem p;
    p.shape = {2, 2, 9, 11, 1, 64};
    p.form = form;
    p.positions = default_positions(p);
    p = rounded_problem(filled(p, random), DType::float32);
    const auto exact = solve(p);
    for (const bool tf32 : {false, true}) {
      p.tf32 = tf32;
      const auto ours = run_on_gpu(p, DType::float32, false);
      const double error = error_norm(ours.out, exact.out) / norm(exact.out);
      EXPECT_LT(error, tf32 ? 1e-2 : tolerance(DType::float32));
      if (tf32) {
        EXPECT_GT(error, 5e-5);
      }
      expect_near("dq", ours.dq, exact.dq, tf32 ? 2e-2 : 1e-4);
      expect_near("dv", ours.dv, exact.dv, tf32 ? 1e-2 : 1e-4);
    }
  }
}

std::string type_name(const testing::TestParamInfo<DType>& info) {
  return info.param == DType::float32    ? "float32"
         : info.param == DType::bfloat16 ? "bfloat16"
                                         : "float16";
}

INSTANTIATE_TEST_SUITE_P(Types, CudaAttention,
                         testing::Values(DType::float32, DType::bfloat16, DType::float16),
                         type_name);

}  // namespace
}  // namespace sape2::kernels::test
