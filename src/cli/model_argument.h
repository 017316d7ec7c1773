#pragma once

#include "cli/model_path.h"

#include <memory>
#include <string>
#include <vector>

namespace sape2::nn {
class ViT;
}

namespace sape2::cli {

/// The model that an argument names (model_file_of()), ready for inference on a device (`cpu`,
/// `cuda`, `cuda:1`).
std::shared_ptr<nn::ViT> load_model_argument(const std::string& argument,
                                             const std::string& device);

/// What such a model is called in figures and lists: the file without its ending, or the folder.
std::string model_name_of(const std::string& argument);

/// The files of the models that come with the program, by name: from the folder `models` of an
/// installed program, of the folder it lies in, or of the source tree it was built in.
std::vector<std::string> shipped_models();

}  // namespace sape2::cli
