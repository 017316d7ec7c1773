// SaPE² attention inside a model of your own: one transformer block in plain LibTorch. It learns to
// tell each patch what its left neighbour holds, which attention without positions cannot do.
//
//   own_block [STEPS]
#include <sape2/ops/ops.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int64_t kWidth = 32, kHeads = 2, kHeadSize = kWidth / kHeads;
constexpr sape2::ops::Grid kGrid{.rows = 6, .cols = 8, .prefix = 1};  // a class token, 6×8 patches

// Multi-head attention with the positions of `sape2-rel-k`: signed soft positions between two
// patches, looked up in two tables and added to the logits.
struct AttentionImpl : torch::nn::Module {
  AttentionImpl() {
    qkv = register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth));
    proj = register_module("proj", torch::nn::Linear(kWidth, kWidth));
    // One row per offset, from −(side − 1) to side − 1 of the longer side. Zeros: training starts
    // without a bias.
    const int64_t offsets = 2 * std::max(kGrid.rows, kGrid.cols) - 1;
    ex = register_parameter("ex", torch::zeros({offsets, kHeadSize}));
    ey = register_parameter("ey", torch::zeros({offsets, kHeadSize}));
    // A gate is sigmoid(gate_scale · q·k + gate_offset); an offset of 2 starts it nearly open.
    gate_scale = register_parameter("gate_scale", torch::tensor(1 / std::sqrt(float(kHeadSize))));
    gate_offset = register_parameter("gate_offset", torch::tensor(2.0F));
  }

  torch::Tensor forward(const torch::Tensor& x) {  // (images, tokens, width)
    const auto heads = qkv(x).view({x.size(0), x.size(1), 3, kHeads, kHeadSize});
    const auto [q, k, v] =
        std::tuple(heads.select(2, 0).transpose(1, 2),  // (images, heads, …)
                   heads.select(2, 1).transpose(1, 2), heads.select(2, 2).transpose(1, 2));
    const auto out = sape2::ops::sape2_attention(
        q, k, v, ex, ey, kGrid,
        {.mode = "k", .span = "between", .gate_scale = gate_scale, .gate_offset = gate_offset},
        "direct", {.bias_inside = false});
    return proj(out.transpose(1, 2).reshape_as(x));
  }

  torch::nn::Linear qkv = nullptr, proj = nullptr;
  torch::Tensor ex, ey, gate_scale, gate_offset;
};
TORCH_MODULE(Attention);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    embed = register_module("embed", torch::nn::Linear(1, kWidth));
    attention = register_module("attention", Attention());
    head = register_module("head", torch::nn::Linear(kWidth, 1));
    class_token = register_parameter("class_token", torch::zeros({1, 1, kWidth}));
  }

  torch::Tensor forward(const torch::Tensor& patches) {  // (images, patches, 1) → the same shape
    auto x = torch::cat({class_token.expand({patches.size(0), 1, kWidth}), embed(patches)}, 1);
    x = x + attention(x);
    return head(x.slice(1, kGrid.prefix));
  }

  torch::nn::Linear embed = nullptr, head = nullptr;
  Attention attention = nullptr;
  torch::Tensor class_token;
};
TORCH_MODULE(Net);

}  // namespace

int main(int argc, char** argv) {
  const long steps = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 100;
  torch::manual_seed(0);
  Net net;
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  double loss = 1;  // what a model that knows nothing of its neighbours gets
  for (long step = 0; step < steps; ++step) {
    const auto patches = torch::randn({64, kGrid.rows, kGrid.cols, 1});
    auto output = net(patches.flatten(1, 2)).view_as(patches);
    const auto error = output.slice(2, 1) - patches.slice(2, 0, kGrid.cols - 1);
    const auto mean = error.square().mean();
    optimizer.zero_grad();
    mean.backward();
    optimizer.step();
    loss = mean.item<double>();
    if (step % 20 == 0) std::printf("step %3ld  mean squared error %.3f\n", step, loss);
  }
  std::printf("after %ld steps %.3f; without positions it would stay at 1\n", steps, loss);
  return loss < 1 ? 0 : 1;
}
