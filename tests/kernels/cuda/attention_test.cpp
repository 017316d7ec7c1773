// The CUDA kernels against plain float64 loops, over many shapes and settings.
#include "attention_checks.h"

namespace sape2::kernels::test {
namespace {

class CudaAttention : public GpuTest {};

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
                                             {5, 64, 64},
                                             {16, 16, 64},
                                             {15, 15, 64}})
    for (const auto [relative, with_gain] :
         {std::array{false, false}, {true, false}, {true, true}}) {
      Problem p;
      p.shape = {1, 2, rows, cols, 0, head_size};
      p.span = relative ? Span::between : Span::suffix;
      p.form = relative ? Form::direct : Form::distance;
      p.inside = !relative;
      p.has_gain = with_gain;
      p.positions = default_positions(p);
      p = filled(p, random);
      // 39 of its positions are within 4e-6 of an integer, where float32 may have another slope.
      if (GetParam() == DType::float32 && cols == 64 && with_gain) continue;
      expect_right(p, GetParam(), false);
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
/// two, and without any there are kernels that know so.
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
      p.has_gain = round % 7 > 2;
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
    p.has_gain = rows % 2 == 0;
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
    p.has_gain = round % 3 > 0;
    p.positions = default_positions(p);
    if (random.coin())
      p.positions = p.span == Span::suffix ? random.between(2, 9) : 2 * random.between(0, 5) + 1;
    expect_right(filled(p, random), GetParam(), random.coin());
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
        p.has_gain = round % 8 < 4;
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
    GTEST_SKIP()
        << "of a million positions one lies so centered an integer (15.9999991) that float32 "
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

/// Forward and backward may not find their rows aligned alike in tiles either: one then takes the
/// TMA, and the other cannot.
TEST_P(CudaAttention, RowsAlignedInOneDirectionOnly) {
  Random random(31);
  for (const auto [rows, cols, prefix] : {std::array{18, 20, 1}, {16, 32, 0}, {5, 48, 0}})
    for (const auto form : {Form::direct, Form::distance})
      for (const bool moves_together : {true, false}) {
        Problem p;
        p.shape = {1, 2, rows, cols, prefix, 64};
        p.form = form;
        p.span = form == Form::direct ? Span::between : Span::suffix;
        p.positions = default_positions(p);
        const auto problem = rounded_problem(filled(p, random), GetParam());
        SCOPED_TRACE(described(problem));
        expect_near(run_moved_on_gpu(problem, GetParam(), moves_together), problem, GetParam());
      }
}

/// Grids whose squares of eight by eight are all there is, several of them beside and below each
/// other, with rows that fill no tiles.
TEST_P(CudaAttention, WholeGridsInSquares) {
  if (GetParam() == DType::float32) GTEST_SKIP() << "only 16-bit types have such kernels";
  Random random(29);
  for (const auto [rows, cols, head_size] :
       {std::array{24, 40, 64}, {16, 16, 64}, {16, 72, 64}, {40, 56, 16}, {8, 128, 64}}) {
    Problem p;
    p.shape = {1, 2, rows, cols, 0, head_size};
    p.form = Form::direct;
    p.has_tables = false;
    p.has_gain = false;
    expect_right(filled(p, random), GetParam(), cols != 40);
  }
}

/// So many heads that a block takes several tiles of rows, in heads of an even and an odd number of
/// tiles, with short and long vectors: whatever belongs to one head must not reach the next.
TEST_P(CudaAttention, SeveralTilesOfRowsABlock) {
  if (GetParam() == DType::float32) GTEST_SKIP() << "only 16-bit types have such blocks";
  Random random(23);
  for (const auto [images, heads, rows, cols, prefix] : {std::array{11, 5, 18, 20, 1},
                                                         {20, 3, 17, 17, 0},
                                                         {7, 6, 21, 20, 70},
                                                         {11, 4, 9, 46, 0},
                                                         {12, 4, 40, 9, 3}}) {
    Problem p;
    p.shape = {images, heads, rows, cols, prefix, 64};
    p.form = Form::distance;
    p.has_tables = false;
    p.has_gain = false;
    expect_right(filled(p, random), GetParam(), prefix == 0);
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

INSTANTIATE_TEST_SUITE_P(Types, CudaAttention, all_types(), type_name);

}  // namespace
}  // namespace sape2::kernels::test
