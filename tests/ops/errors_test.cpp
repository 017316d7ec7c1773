// A wrong argument gets one sentence that names it, its value and what was expected.
#include "sape2/ops/ops.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sape2::testing {
namespace {

const ops::Grid kGrid{3, 4, 1};

template <class Call>
std::string sentence(Call call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

/// The arguments of a good call; each test spoils one.
struct Call {
  at::Tensor q = at::zeros({2, 3, 13, 8}), k = q.clone(), v = q.clone();
  at::Tensor ex = at::zeros({5, 8}), ey = at::zeros({5, 8});
  ops::Grid grid = kGrid;
  ops::VectorOptions vectors;
  std::string form = "distance";
  ops::BiasOptions bias;

  std::string says() const {
    return sentence([&] { ops::sape2_attention(q, k, v, ex, ey, grid, vectors, form, bias); });
  }
};

struct Mistake {
  const char* name;
  std::function<void(Call&)> spoil;
  const char* expected;
};

TEST(Errors, EveryMistakeNamesItsArgument) {
  const std::vector<Mistake> mistakes = {
      {"axes",
       [](Call& c) {
         c.q = at::zeros({3, 13, 8});
       },
       "sape2_attention: q [3, 13, 8] has 3 axes; [images, heads, tokens, head size] was expected"},
      {"k shape",
       [](Call& c) {
         c.k = at::zeros({2, 3, 12, 8});
       },
       "sape2_attention: k [2, 3, 12, 8] differs in shape from q [2, 3, 13, 8]; q, k and v must be "
       "alike"},
      {"v type", [](Call& c) { c.v = c.v.to(at::kDouble); },
       "sape2_attention: v is Double but q is Float; q, k and v must be of one type"},
      {"integer",
       [](Call& c) {
         c.q = c.k = c.v = at::zeros({2, 3, 13, 8}, at::kLong);
       },
       "sape2_attention: q is Long; float32, float64, bfloat16 or (on a GPU) float16 was expected"},
      {"half",
       [](Call& c) {
         c.q = c.k = c.v = at::zeros({2, 3, 13, 8}, at::kHalf);
       },
       "sape2_attention: q is float16, which is not supported on the CPU; use bfloat16 or float32"},
      {"grid", [](Call& c) { c.grid.cols = 5; },
       "sape2_attention: q [2, 3, 13, 8] has 13 tokens, but prefix + rows·cols is 1 + 3·5; give "
       "the "
       "grid these tokens came from"},
      {"huge grid",
       [](Call& c) {
         c.grid = {int64_t{1} << 62, 4, 1};
       },
       "give the grid these tokens came from"},
      {"rows", [](Call& c) { c.grid.rows = 0; },
       "sape2_attention: rows is 0; at least 1 was expected"},
      {"cols", [](Call& c) { c.grid.cols = -1; },
       "sape2_attention: cols is -1; at least 1 was expected"},
      {"prefix", [](Call& c) { c.grid.prefix = -2; }, "sape2_attention: prefix is -2"},
      {"mode", [](Call& c) { c.vectors.mode = "kq"; },
       "sape2_attention: mode is \"kq\"; one of \"q\", \"k\", \"qk\" was expected"},
      {"span", [](Call& c) { c.vectors.span = "prefix"; },
       "sape2_attention: span is \"prefix\"; one of \"suffix\", \"between\" was expected"},
      {"form", [](Call& c) { c.form = "cosine"; },
       "sape2_attention: form is \"cosine\"; one of \"distance\", \"direct\", \"paths\" was "
       "expected"},
      {"table width",
       [](Call& c) {
         c.ex = at::zeros({5, 7});
       },
       "sape2_attention: ex [5, 7] does not fit q [2, 3, 13, 8] in mode \"k\"; [M, 8] or [3, M, 8] "
       "was expected"},
      {"table heads",
       [](Call& c) {
         c.ex = at::zeros({2, 5, 8});
       },
       "[M, 8] or [3, M, 8] was expected"},
      {"tables of qk", [](Call& c) { c.vectors.mode = "qk"; },
       "[2, M, 8] or [2, 3, M, 8] was expected"},
      {"tables differ",
       [](Call& c) {
         c.ey = at::zeros({6, 8});
       },
       "sape2_attention: ex [5, 8] and ey [6, 8] differ; tables of one shape were expected"},
      {"M small",
       [](Call& c) {
         c.ex = c.ey = at::zeros({1, 8});
       },
       "sape2_attention: ex and ey have M = 1 rows; span \"suffix\" needs at least 2"},
      {"M even",
       [](Call& c) {
         c.vectors.span = "between";
         c.ex = c.ey = at::zeros({4, 8});
       },
       "sape2_attention: ex and ey have M = 4 rows; span \"between\" needs an odd number, "
       "positions −T … T"},
      {"M zero",
       [](Call& c) {
         c.vectors.span = "between";
         c.ex = c.ey = at::zeros({0, 8});
       },
       "have M = 0 rows"},
      {"table type",
       [](Call& c) {
         c.ex = c.ey = at::zeros({5, 8}, at::kDouble);
       },
       "sape2_attention: ex is Double where q is Float; Float was expected"},
      {"gain", [](Call& c) { c.bias.gain = at::zeros({2}); },
       "sape2_attention: gain [2] is neither one number nor one for each of q's 3 heads; shape [] "
       "or [3] was expected"},
      {"gate scale",
       [](Call& c) {
         c.vectors.gate_scale = at::zeros({1, 3});
       },
       "sape2_attention: gate_scale [1, 3] is neither"},
      {"gate offset", [](Call& c) { c.vectors.gate_offset = at::zeros({4}); },
       "sape2_attention: gate_offset [4] is neither"},
      {"scale", [](Call& c) { c.bias.scale = NAN; },
       "sape2_attention: scale is nan; a finite number was expected"},
      {"undefined", [](Call& c) { c.ex = at::Tensor(); }, "ex is an undefined tensor"},
      {"empty heads",
       [](Call& c) {
         c.q = c.k = c.v = at::zeros({2, 0, 13, 8});
       },
       "has an empty axis"},
      {"device", [](Call& c) { c.ex = c.ex.to(at::kMeta); },
       "sape2_attention: ex is on meta but q is on cpu; move both to one device"},
  };
  EXPECT_EQ(Call().says(), "no error");
  for (const auto& mistake : mistakes) {
    Call call;
    mistake.spoil(call);
    EXPECT_NE(call.says().find(mistake.expected), std::string::npos)
        << mistake.name << " says: " << call.says();
  }
}

TEST(Errors, TheOtherOperatorsCheckToo) {
  const auto q = at::zeros({2, 3, 13, 8});
  const auto table = at::zeros({5, 8}), ux = at::zeros({2, 3, 12, 4}),
             uy = at::zeros({2, 3, 12, 3});
  const auto expect = [](const std::string& said, const std::string& part) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  expect(
      sentence([&] { ops::distance_attention(q, q, q, uy, ux, kGrid); }),
      "distance_attention: ux [2, 3, 12, 3] does not fit q [2, 3, 13, 8]; [2, 3, 12, 4], with or "
      "without a leading axis of 2, was expected");
  expect(sentence([&] { ops::axial_attention(q, q, q, ux, ux, kGrid); }),
         "axial_attention: zy [2, 3, 12, 4] does not fit");
  expect(sentence([&] {
           ops::axial_attention(q, q, q, at::stack({ux, ux}), uy, kGrid);
         }),
         "differ in the leading axis of 2; give it to both or to none");
  expect(sentence([&] {
           ops::cope_attention(q, q, q, at::zeros({5, 7}));
         }),
         "cope_attention: e [5, 7] does not fit q [2, 3, 13, 8]; [M, 8] with M of at least 1 was "
         "expected");
  expect(sentence([&] { ops::sape2_bias(q, q, table, table, kGrid, {}, "near"); }),
         "sape2_bias: form is \"near\"");
  expect(sentence([&] {
           ops::sape2_vectors(q, q, table, table, {2, 2, 0});
         }),
         "sape2_vectors: q [2, 3, 13, 8] has 13 tokens");
  expect(sentence([&] {
           ops::rope(at::zeros({1, 1, 4, 3}));
         }),
         "rope: x [1, 1, 4, 3] has head size 3; a multiple of 2 was expected");
  expect(sentence([&] {
           ops::rope2d(at::zeros({1, 1, 4, 6}), {2, 2, 0});
         }),
         "rope2d: x [1, 1, 4, 6] has head size 6; a multiple of 4 was expected");
  expect(sentence([&] {
           ops::rope2d_mixed(q, at::zeros({3, 3}), at::zeros({3, 4}), kGrid);
         }),
         "rope2d_mixed: fx [3, 3] does not fit x [2, 3, 13, 8]; [3, 4] was expected");
  expect(sentence([&] { ops::attention(q, q, at::zeros({1})); }),
         "attention: v [1] differs in shape");
}

}  // namespace
}  // namespace sape2::testing
