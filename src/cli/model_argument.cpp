#include "cli/model_argument.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/model_file.h"
#include "sape2/nn/vit.h"
#include "sape2/train/device.h"

#include <algorithm>

namespace sape2::cli {
namespace fs = std::filesystem;

std::shared_ptr<nn::ViT> load_model_argument(const std::string& argument,
                                             const std::string& device) {
  const auto place = train::device_named(device);
  auto model = io::load_model(model_file_of(argument));
  model->to(place);
  return model;
}

std::vector<std::string> shipped_models() {
  constexpr int kParentsSearched = 5;  // from a program in the build tree to the source tree
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<fs::path> places{folder.parent_path() / "share" / "sape2" / "models"};
  for (int i = 0; i < kParentsSearched && folder.has_relative_path(); ++i) {
    places.push_back(folder / "models");
    folder = folder.parent_path();
  }
  for (const fs::path& place : places) {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(place, error)) {
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path().native());
    }
    if (files.empty()) continue;
    std::ranges::sort(files);
    return files;
  }
  throw Error(
      "no model is given, and those shipped with the program are not beside it; give a "
      "model file or the folder of a run");
}

std::string model_name_of(const std::string& argument) {
  std::error_code error;
  fs::path path(argument);
  if (fs::is_directory(path, error)) return fs::canonical(path, error).filename().native();
  const std::string stem = path.stem().native();
  const fs::path folder = fs::absolute(path, error).parent_path();
  return stem == "best" || stem == "last" ? folder.filename().native() : stem;
}

}  // namespace sape2::cli
