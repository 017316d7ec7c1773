#include "cli/model_argument.h"

#include "sape2/error.h"
#include "sape2/io/model_file.h"
#include "sape2/nn/nearest_name.h"
#include "sape2/nn/vit.h"
#include "sape2/train/device.h"

namespace sape2::cli {
namespace fs = std::filesystem;

fs::path model_file_of(const std::string& argument) {
  std::error_code error;
  if (!fs::is_directory(argument, error)) return argument;
  for (const char* name : {"best.safetensors", "last.safetensors"}) {
    if (fs::exists(fs::path(argument) / name, error)) return fs::path(argument) / name;
  }
  throw Error("the folder " + nn::in_quotes(argument) +
              " holds no best.safetensors; give a model file or the folder of a run");
}

std::shared_ptr<nn::ViT> load_model_argument(const std::string& argument,
                                             const std::string& device) {
  const auto place = train::device_named(device);
  auto model = io::load_model(model_file_of(argument));
  model->to(place);
  return model;
}

}  // namespace sape2::cli
