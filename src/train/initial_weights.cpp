#include "train/initial_weights.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/model_file.h"
#include "sape2/io/tensor_file.h"
#include "sape2/nn/vit.h"

#include <ATen/ATen.h>

namespace sape2::train {

std::vector<std::string> start_from(nn::ViT& model, const std::filesystem::path& path) {
  const auto file = io::SafetensorsFile::open(path);
  io::check_weights(file);
  std::vector<std::string> left_out;
  const at::NoGradGuard no_grad;
  const auto parameters = model.named_parameters();
  for (const auto& item : parameters) {
    const io::TensorView* view = file.find(item.key());
    if (view == nullptr || view->shape != item.value().sizes().vec()) {
      left_out.push_back(item.key());
      continue;
    }
    const at::Tensor& parameter = item.value();
    parameter.copy_(io::to_tensor(file, *view));
  }
  if (left_out.size() == parameters.size()) {
    throw Error(in_quotes(path) +
                " has no tensor with a name and shape of this model, so it cannot start from it");
  }
  return left_out;
}

}  // namespace sape2::train
