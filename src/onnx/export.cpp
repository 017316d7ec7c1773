#include "sape2/onnx/export.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/atomic_file.h"
#include "sape2/nn/vit.h"

#include "onnx/model_graph.h"

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

namespace sape2::onnx {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLargestFile = (std::size_t{1} << 31) - 1;  // of Protocol Buffers

std::string text_of(const nn::Size2d& size) {
  return std::to_string(size.height) + "×" + std::to_string(size.width);
}

void check_size(const nn::ModelConfig& config, const nn::Size2d& size) {
  const nn::Size2d& patch = config.vit.patch_size;
  if (size.height > 0 && size.width > 0 && size.height % patch.height == 0 &&
      size.width % patch.width == 0) {
    return;
  }
  throw Error("images of " + text_of(size) + " are asked for, which patches of " + text_of(patch) +
              " do not divide");
}

void check_opset(std::int64_t opset) {
  if (opset >= kOldestOpset && opset <= kNewestOpset) return;
  throw Error("opset is " + std::to_string(opset) + "; one from " + std::to_string(kOldestOpset) +
              " to " + std::to_string(kNewestOpset) + " was expected");
}

// (pixels − mean) / deviation
Value normalised(const Export& to, const Value& pixels) {
  const nn::ModelConfig& config = to.model.config();
  if (config.mean.empty()) return pixels;
  const Graph::Scope scope(to.graph, "normalise");
  const auto per_channel = [&](const std::string& name, const std::vector<double>& values) {
    return to.constant(name, at::tensor(values).view({1, -1, 1, 1}));
  };
  const Value centred = to.graph.subtract(pixels, per_channel("mean", config.mean));
  return to.graph.node("Div", {centred, per_channel("std", config.deviation)});
}

std::string described_input(const nn::ModelConfig& config, bool normalise) {
  const std::string pixels = config.vit.channels == 3 ? "RGB pixels in [0, 1]" : "pixels in [0, 1]";
  if (normalise || config.mean.empty()) return pixels;
  return pixels + ", normalised: (pixel - mean) / std";
}

Graph::Properties properties_of(const nn::ModelConfig& config, bool normalise) {
  const auto text = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  return {{"sape2", nn::to_json(config)},
          {"input", described_input(config, normalise)},
          {"mean", text(config.mean)},
          {"std", text(config.deviation)},
          {"class_names", text(config.class_names)}};
}

}  // namespace

void export_model(const nn::ViT& model, const std::filesystem::path& path,
                  const ExportOptions& options) {
  const at::NoGradGuard no_grad;
  const nn::ModelConfig& config = model.config();
  nn::require_classifier(config, "an ONNX file");
  const nn::Size2d size = options.image_size.value_or(config.vit.image_size);
  check_size(config, size);
  check_opset(options.opset);
  if (!knows_encoding(config.encoding)) {
    throw Error("the encoding " + in_quotes(config.encoding.name()) +
                " has no form in ONNX's operators yet");
  }
  Graph graph;
  const ops::Grid grid{size.height / config.vit.patch_size.height,
                       size.width / config.vit.patch_size.width, config.vit.prefix()};
  const Export to{model, grid, graph};
  const Value images =
      graph.input(options.input, {0, config.vit.channels, size.height, size.width});
  const Value result = logits(to, options.normalise ? normalised(to, images) : images);
  graph.output(options.output, result, {0, config.vit.classes});
  const std::string file = graph.file(options.opset, properties_of(config, options.normalise));
  if (file.size() > kLargestFile) {
    throw Error("the ONNX file would have " + std::to_string(file.size() >> 20) +
                " MiB, but one file holds at most 2 GiB");
  }
  io::write_file(path, file);
}

}  // namespace sape2::onnx
