// Attention of a projection's output, against the same attention of its thirds.
#include "sape2/ops/ops.h"

#include "support/gpu.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

namespace sape2::ops {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

constexpr int64_t kHeads = 3, kHeadSize = 8;
const Grid kGrid{4, 5, 1};

/// A projection's output, and parameters for sape2-rel-k.
struct Problem {
  explicit Problem(at::ScalarType type = at::kFloat, at::Device device = at::kCPU,
                   int64_t images = 2) {
    at::manual_seed(3);
    const auto leaf = [&](at::IntArrayRef sizes, at::ScalarType type) {
      return at::randn(sizes).to(device, type).requires_grad_();
    };
    const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
    qkv = leaf({images, kGrid.tokens(), 3 * kHeads * kHeadSize}, type);
    ex = leaf({9, kHeadSize}, wide);
    ey = leaf({9, kHeadSize}, wide);
    vectors = {"k", "between", leaf({kHeads}, wide), leaf({kHeads}, wide), std::sqrt(8.0)};
    bias = {.gain = leaf({kHeads}, wide), .bias_inside = false};
  }

  Tensor packed() const {
    return packed_sape2_attention(qkv, kHeads, ex, ey, kGrid, vectors, form, bias);
  }
  Tensor split() const {
    const Tensor thirds = qkv.reshape({-1, kGrid.tokens(), 3, kHeads, kHeadSize});
    const auto third = [&](int64_t number) { return thirds.select(2, number).transpose(1, 2); };
    return sape2_attention(third(0), third(1), third(2), ex, ey, kGrid, vectors, form, bias)
        .transpose(1, 2)
        .flatten(2);
  }
  Tensors leaves() const {
    return {qkv, ex, ey, vectors.gate_scale, vectors.gate_offset, bias.gain};
  }
  /// The result, and the gradients of `leaves` for fixed gradients of the result.
  Tensors solved(const Tensor& out, const Tensors& leaves) const {
    const Tensor weights = at::linspace(-1, 2, out.numel()).to(out.options()).view(out.sizes());
    Tensors all = torch::autograd::grad({(out * weights).sum()}, leaves);
    all.insert(all.begin(), out);
    return all;
  }

  Tensor qkv, ex, ey;
  VectorOptions vectors;
  BiasOptions bias;
  std::string form = "direct";
};

void expect_same(const Tensors& some, const Tensors& other) {
  ASSERT_EQ(some.size(), other.size());
  for (size_t i = 0; i < some.size(); ++i) EXPECT_TRUE(at::equal(some[i], other[i])) << i;
}

std::vector<at::Device> devices() {
  std::vector<at::Device> all{at::kCPU};
  if (test::has_gpu()) all.emplace_back(at::kCUDA);
  return all;
}

TEST(PackedAttention, IsThatOfTheThirds) {
  for (const at::Device device : devices()) {
    for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble}) {
      for (const char* form : {"direct", "distance"}) {
        Problem p(type, device);
        p.form = form;
        expect_same(p.solved(p.packed(), p.leaves()), p.solved(p.split(), p.leaves()));
      }
    }
  }
}

TEST(PackedAttention, IsThatOfTheThirdsOnThePlainFormulas) {
  const Problem p;
  const ReferenceGuard formula;
  expect_same(p.solved(p.packed(), p.leaves()), p.solved(p.split(), p.leaves()));
}

TEST(PackedAttention, TakesEveryMemoryLayout) {
  Problem p;
  const Tensor expected = p.split();
  const Tensor wider = at::cat({p.qkv, p.qkv}, 2).detach();
  for (const Tensor& same : {wider.narrow(2, 0, p.qkv.size(2)),
                             p.qkv.detach().transpose(0, 1).contiguous().transpose(0, 1)}) {
    ASSERT_FALSE(same.is_contiguous());
    p.qkv = same;
    EXPECT_TRUE(at::equal(p.packed(), expected));
  }
  p.qkv = p.qkv.detach().narrow(0, 0, 1).expand({2, -1, -1}).requires_grad_();
  expect_same(p.solved(p.packed(), p.leaves()), p.solved(p.split(), p.leaves()));
}

TEST(PackedAttention, GivesGradientsOfWhatIsLearntAlone) {
  const Problem all;
  const Tensors expected = all.solved(all.split(), all.leaves());
  for (size_t learnt = 0; learnt < all.leaves().size(); ++learnt) {
    const Problem p;
    Tensors leaves = p.leaves();
    for (size_t i = 0; i < leaves.size(); ++i) leaves[i].set_requires_grad(i == learnt);
    const Tensors found = p.solved(p.packed(), {leaves[learnt]});
    expect_same(found, {expected[0], expected[1 + learnt]});
  }
}

TEST(PackedAttention, IsOneNodeWhoseGradientIsOneTensor) {
  for (const at::Device device : devices()) {
    const Problem p(at::kFloat, device);
    const Tensor out = p.packed();
    EXPECT_TRUE(out.is_contiguous());
    EXPECT_EQ(out.grad_fn()->name(), "sape2::PackedSape2AttentionBackward");
    EXPECT_EQ(out.grad_fn()->num_inputs(), 1);
    EXPECT_EQ(out.grad_fn()->num_outputs(), p.leaves().size());
    EXPECT_TRUE(torch::autograd::grad({out.sum()}, {p.qkv})[0].is_contiguous());
  }
}

TEST(PackedAttention, TakesNoImages) {
  const Problem p(at::kFloat, at::kCPU, 0);
  const Tensor out = p.packed();
  EXPECT_EQ(out.sizes(), (std::vector<int64_t>{0, kGrid.tokens(), kHeads * kHeadSize}));
  EXPECT_EQ(torch::autograd::grad({out.sum()}, {p.qkv})[0].sizes(), p.qkv.sizes());
}

TEST(PackedAttention, RefusesASecondBackward) {
  const Problem p;
  const Tensor first = torch::autograd::grad({p.packed().square().sum()}, {p.qkv}, {}, true,
                                             /*create_graph=*/true)[0];
  EXPECT_THROW(first.square().sum().backward(), c10::Error);
}

/// The sentence of the mistake.
std::string refused(const Problem& p, int64_t heads = kHeads) {
  try {
    packed_sape2_attention(p.qkv, heads, p.ex, p.ey, kGrid, p.vectors, p.form, p.bias);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing was refused";
}

TEST(PackedAttention, SaysWhatIsWrong) {
  using ::testing::HasSubstr;
  EXPECT_THAT(refused(Problem(), 0), HasSubstr("heads is 0; at least 1 was expected"));
  EXPECT_THAT(refused(Problem(), 5),
              HasSubstr("packed_sape2_attention: qkv [2, 21, 72] does not fit; [images, tokens, "
                        "3·5·head size] was expected"));
  Problem p;
  p.qkv = p.qkv[0];
  EXPECT_THAT(refused(p), HasSubstr("qkv [21, 72] does not fit"));
  p.qkv = Tensor();
  EXPECT_THAT(refused(p), HasSubstr("qkv is an undefined tensor"));
  p = Problem();
  p.form = "paths";
  EXPECT_THAT(refused(p), HasSubstr("form is \"paths\"; \"distance\" or \"direct\" was expected"));
  p = Problem();
  p.qkv = p.qkv.narrow(1, 0, 20);
  EXPECT_THAT(refused(p), HasSubstr("has 20 tokens, but prefix + rows·cols is 1 + 4·5"));
}

}  // namespace
}  // namespace sape2::ops
