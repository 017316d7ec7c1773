#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sape2::nn {
class ViT;
}

namespace sape2::train {

/// Gives a model the weights of a model file, as far as names and shapes agree. Returns the names
/// of the parameters that the file does not have in this shape, such as a head for other classes;
/// they stay as they are. Throws Error where nothing agrees.
std::vector<std::string> start_from(nn::ViT& model, const std::filesystem::path& file);

}  // namespace sape2::train
