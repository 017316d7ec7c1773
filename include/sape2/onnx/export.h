#pragma once

#include "sape2/nn/vit_config.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace sape2::nn {
class ViT;
}

/// Models as ONNX files, which run without LibTorch and sape2: onnxruntime, TensorRT,
/// OpenVINO, a browser.
namespace sape2::onnx {

/// Versions of ONNX's standard operators that can be written. The graph is the same for all.
inline constexpr std::int64_t kOldestOpset = 17;
inline constexpr std::int64_t kNewestOpset = 23;

struct ExportOptions {
  /// The size of the images that the file takes; nothing: the one trained at. Tables of positions
  /// are resized for it as nn::ViT resizes them.
  std::optional<nn::Size2d> image_size = std::nullopt;
  /// The file takes pixels in [0, 1] and normalises them itself. Otherwise it takes what nn::ViT
  /// takes, images that are normalised already; mean and deviation are in its metadata.
  bool normalise = false;
  std::int64_t opset = kOldestOpset;
  std::string input = "images";
  std::string output = "logits";
};

/// Writes a model as an ONNX file of standard operators: float32, one input `[batch, channels,
/// height, width]`, one output `[batch, classes]`, the number of images open. Attention is written
/// as plain products with a bias that is stored while it runs: an ONNX file has no fused kernels.
///
/// Metadata: `sape2` (the configuration as JSON), `input` (what goes in, in words), `mean`, `std`
/// and `class_names` (JSON lists).
///
/// The file appears whole or not at all. Throws Error with one sentence if patches do not divide
/// the size, if the opset is none of the above, or if the file would be larger than 2 GiB,
/// the most that ONNX holds in one file.
void export_model(const nn::ViT& model, const std::filesystem::path& path,
                  const ExportOptions& options = {});

}  // namespace sape2::onnx
