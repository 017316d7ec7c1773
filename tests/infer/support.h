#pragma once

#include "sape2/infer/model.h"
#include "sape2/io/model_file.h"
#include "sape2/nn/vit.h"

#include "support/scratch_folder.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace sape2::infer::testing {

/// A small model on a grid whose sides differ, with a class token and registers.
nn::ModelConfig small_config(const std::string& encoding);

/// A model of LibTorch with random parameters, none at a special value, and its file.
struct SavedModel {
  explicit SavedModel(const nn::ModelConfig& config,
                      io::WeightType weights = io::WeightType::float32);

  /// What LibTorch makes of normalised images.
  std::vector<float> logits(const std::vector<float>& pixels, std::int64_t count,
                            std::int64_t height, std::int64_t width) const;

  sape2::testing::ScratchFolder folder;
  const std::filesystem::path path = folder / "model.safetensors";
  std::shared_ptr<nn::ViT> model;  ///< as loaded from the file
};

/// Normal numbers from a seed.
std::vector<float> random_numbers(std::int64_t count, std::uint64_t seed);

/// The largest difference over the largest number of `expected`.
double relative_difference(const std::vector<float>& actual, const std::vector<float>& expected);

/// Every encoding by itself, some with `+ape`, and SaPE² with each value of each option.
std::vector<std::string> encodings_with_options();

}  // namespace sape2::infer::testing
