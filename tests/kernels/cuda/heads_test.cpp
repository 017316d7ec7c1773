// The kernels that hold a whole head in a block, which take small grids in 16 bits.
#include "attention_checks.h"

namespace sape2::kernels::test {
namespace {

class CudaHeads : public GpuTest {};

/// In 16 bits these run one block per head, at the edges of what that takes: one token, one line,
/// more rows than 16, all slots used, class and register tokens, several images a block, and sizes
/// next to the last that fit.
TEST_P(CudaHeads, SmallGridsAtTheirEdges) {
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
TEST_P(CudaHeads, UsualSquareGrids) {
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
TEST_P(CudaHeads, CompiledGridsWithPrefixTokens) {
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
TEST_P(CudaHeads, RowsAlignedInOneDirectionOnly) {
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

/// Calls use(sum of one solution, the same of another) for what is summed over images.
template <class Use>
void for_each_sum(Solution& one, const Solution& other, Use use) {
  use(one.dgain, other.dgain);
  use(one.dgate_scale, other.dgate_scale);
  use(one.dgate_offset, other.dgate_offset);
  for (int axis = 0; axis < 2; ++axis) use(one.dtables[0][axis], other.dtables[0][axis]);
}

/// More heads than a GPU has multiprocessors: a block takes one image after the other, and loads
/// the next while it works. Each has, to the last bit, the results it has alone, and sums over
/// images are those of all of them.
TEST_P(CudaHeads, ImagesDoNotNoticeThoseBefore) {
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

INSTANTIATE_TEST_SUITE_P(Types, CudaHeads, all_types(), type_name);

}  // namespace
}  // namespace sape2::kernels::test
