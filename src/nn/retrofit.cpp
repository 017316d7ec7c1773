#include "sape2/nn/retrofit.h"

#include "sape2/nn/encoding_definition.h"
#include "sape2/nn/vit.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <string_view>

namespace sape2::nn {
namespace {

constexpr std::string_view kPatchKernels = "patch_embed.proj.weight";
constexpr std::string_view kLayerPart = ".attn.pos.";

std::string last_name(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

// Of the position encoding, APE aside.
bool is_position(const std::string& name) {
  return name.find(kLayerPart) != std::string::npos || name == "lape_embed";
}

bool same_classes(const ModelConfig& one, const ModelConfig& other) {
  const bool both_named = !one.class_names.empty() && !other.class_names.empty();
  return one.task == other.task && one.vit.classes == other.vit.classes &&
         (!both_named || one.class_names == other.class_names);
}

// Kernels (D, C, h, w) for patches of another size: the least-squares solution that gives the same
// products with patches that are resized bilinearly (Beyer et al., FlexiViT, 2023).
at::Tensor resized_kernels(const at::Tensor& kernels, const Size2d& to) {
  const int64_t height = kernels.size(2), width = kernels.size(3), pixels = height * width;
  const at::Tensor basis = at::eye(pixels, at::kDouble).view({pixels, 1, height, width});
  const at::Tensor resize =
      at::_upsample_bilinear2d_aa(basis, {to.height, to.width}, /*align_corners=*/false)
          .flatten(1);  // (h·w, to)
  const at::Tensor solved =
      at::matmul(kernels.flatten(2).to(at::kDouble), at::linalg_pinv(resize).transpose(0, 1));
  return solved.to(kernels.scalar_type()).unflatten(2, {to.height, to.width});
}

// What a parameter of `model` starts with; undefined: nothing of the trained model.
class Source {
 public:
  Source(const ModelConfig& model, const ViT& trained)
      : model_(model),
        trained_(trained.config()),
        weights_(trained.weights_at(model.vit.rows(), model.vit.cols())),
        keeps_head_(same_classes(model, trained_)),
        keeps_positions_(same_positions(model.encoding, trained_.encoding)) {}

  at::Tensor of(const std::string& name, at::IntArrayRef sizes) const {
    const auto found = weights_.find(name);
    if (found == weights_.end()) return {};
    if (is_position(name) && !keeps_positions_) return {};
    if (name.starts_with("head.") && !keeps_head_) return {};
    const at::Tensor& tensor = found->second;
    if (tensor.sizes() == sizes) return tensor;
    const bool other_patches = name == kPatchKernels && tensor.size(1) == sizes[1];
    return other_patches ? resized_kernels(tensor, model_.vit.patch_size) : at::Tensor();
  }

  bool keeps_positions() const { return keeps_positions_; }

 private:
  const ModelConfig& model_;
  const ModelConfig& trained_;
  std::map<std::string, at::Tensor> weights_;
  bool keeps_head_, keeps_positions_;
};

// Names that start at 0 where they are new.
std::vector<std::string> silenced(const EncodingSpec& encoding, bool keeps_positions) {
  std::vector<std::string> names{"pos_embed"};
  if (keeps_positions) return names;
  if (const auto start = silent_start(encoding)) {
    names.insert(names.end(), start->zeroed.begin(), start->zeroed.end());
  }
  return names;
}

std::optional<double> difference(ViT& model, ViT& trained) {
  const ViTConfig &mine = model.config().vit, &theirs = trained.config().vit;
  if (mine.channels != theirs.channels || mine.patch_size != theirs.patch_size ||
      mine.prefix() != theirs.prefix()) {
    return std::nullopt;
  }
  const at::Generator noise = at::detail::createCPUGenerator(/*seed=*/0);
  const at::Tensor images =
      at::randn({2, mine.channels, mine.image_size.height, mine.image_size.width}, noise);
  const bool was_training = model.is_training();
  model.eval();
  trained.eval();
  const at::Tensor before = trained.forward_features(images),
                   after = model.forward_features(images);
  model.train(was_training);
  const double largest = before.abs().max().item<double>();
  return (after - before).abs().max().item<double>() / std::max(largest, 1e-30);
}

}  // namespace

Retrofit retrofit(ViT& model, ViT& trained) {
  check_retrofit(trained.config(), model.config());
  const at::NoGradGuard no_grad;
  const Source source(model.config(), trained);
  const auto zero = silenced(model.config().encoding, source.keeps_positions());
  Retrofit result;
  for (auto& item : model.named_parameters()) {
    at::Tensor& parameter = item.value();
    if (const at::Tensor weights = source.of(item.key(), parameter.sizes()); weights.defined()) {
      parameter.copy_(weights);
      ++result.kept;
    } else if (std::ranges::find(zero, last_name(item.key())) != zero.end()) {
      parameter.zero_();
      result.zeroed.push_back(item.key());
    } else {
      result.fresh.push_back(item.key());
    }
  }
  result.difference = difference(model, trained);
  return result;
}

}  // namespace sape2::nn
