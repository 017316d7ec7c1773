#include "nn/support.h"
#include "ops/inspection/attention_weights.h"

#include <gtest/gtest.h>

// What every encoding shows of its attention is what it does.
namespace sape2::nn::testing {
namespace {

TEST(Inspect, ShowsTheAttentionOfEveryEncoding) {
  const at::NoGradGuard no_grad;
  for (const std::string& encoding : all_encodings()) {
    SCOPED_TRACE(encoding);
    const LayerFixture f(encoding);
    const at::Tensor q = random_tokens(f.shape, f.grid, 11), k = random_tokens(f.shape, f.grid, 12);
    const ops::AttentionRows rows = f.layer->inspect(q, k, f.grid, {4, 1});
    const at::Tensor all =
        ops::attention_weights(q, [&](const at::Tensor& v) { return f.attend(q, k, v); });
    EXPECT_LT(difference(rows.attention.select(2, 0), all.select(2, f.grid.prefix + 4)), 1e-12);
    EXPECT_LT(difference(rows.attention.select(2, 1), all.select(2, f.grid.prefix + 1)), 1e-12);
  }
}

// The factor takes the bias into the logits: with it they give the attention.
TEST(Inspect, TellsWhatTheBiasAddsToTheLogits) {
  const at::NoGradGuard no_grad;
  std::vector<std::string> encodings = all_encodings();
  encodings.insert(encodings.end(), {"sape2-k[gain=-2]", "sape2-rel-q[gain=3,bias=inside]"});
  for (const std::string& encoding : encodings) {
    SCOPED_TRACE(encoding);
    const LayerFixture f(encoding);
    const at::Tensor q = random_tokens(f.shape, f.grid, 11), k = random_tokens(f.shape, f.grid, 12);
    const ops::AttentionRows rows = f.layer->inspect(q, k, f.grid, {4, 1});
    EXPECT_EQ(rows.logit_factor.defined(), rows.bias.defined());
    if (!rows.bias.defined() || encoding == "cope") continue;  // CoPE: bias of prefix tokens, too
    const at::Tensor index = at::tensor({4, 1}, at::kLong) + f.grid.prefix;
    const double root = std::sqrt(static_cast<double>(q.size(3)));
    const at::Tensor added = rows.bias * rows.logit_factor.view({-1, 1, 1});
    const at::Tensor logits = q.index_select(2, index).matmul(k.transpose(2, 3)) / root +
                              at::constant_pad_nd(added, {f.grid.prefix, 0});
    EXPECT_LT(difference(logits.softmax(-1), rows.attention), 1e-10);
  }
}

TEST(Inspect, TellsWhichPositionsTheTablesClamp) {
  const at::NoGradGuard no_grad;
  const LayerFixture f("sape2-k[gates=open,M=3]");
  const at::Tensor q = random_tokens(f.shape, f.grid, 11);
  const ops::AttentionRows rows = f.layer->inspect(q, q, f.grid, {0});
  // Open gates: position cols − m, and the table ends at 2.
  for (int64_t m = 0; m < f.grid.cols; ++m) {
    EXPECT_EQ(rows.x.clamped[0][0][0][m].item<bool>(), f.grid.cols - m > 2) << m;
  }
  const LayerFixture cope("cope[M=2]");
  const ops::AttentionRows sums = cope.layer->inspect(q, q, cope.grid, {0});
  EXPECT_TRUE(sums.clamped.equal(sums.gates.flip({-1}).cumsum(-1).flip({-1}) > 1));
}

TEST(Inspect, SaysWhichEncodingsHaveABias) {
  const at::NoGradGuard no_grad;
  for (const std::string& encoding : all_encodings()) {
    SCOPED_TRACE(encoding);
    const LayerFixture f(encoding);
    const at::Tensor q = random_tokens(f.shape, f.grid, 11), k = random_tokens(f.shape, f.grid, 12);
    const ops::AttentionRows rows = f.layer->inspect(q, k, f.grid, {0});
    const bool sape2 = encoding.starts_with("sape2"), rpe = encoding.starts_with("rpe");
    EXPECT_EQ(rows.bias.defined(), sape2 || rpe || encoding == "cope");
    EXPECT_EQ(rows.x.bias.defined(), sape2 || rpe);
    EXPECT_EQ(rows.x.gates.defined(), sape2);
    EXPECT_EQ(rows.gates.defined(), encoding == "cope");
    EXPECT_EQ(rows.is_distance, sape2 && !encoding.starts_with("sape2-rel"));
  }
}

}  // namespace
}  // namespace sape2::nn::testing
