// Models of every encoding, option, pooling, prefix and grid as ONNX files, with images and the
// logits that nn::ViT has for them; check.py compares.
// usage: onnx_cases FOLDER
#include "sape2/io/tensor_file.h"
#include "sape2/nn/encoding_definition.h"
#include "sape2/nn/presets.h"
#include "sape2/nn/vit.h"
#include "sape2/onnx/export.h"

#include <ATen/ATen.h>

#include <cstdio>
#include <string>

namespace sape2 {
namespace {

nn::ModelConfig small(const std::string& encoding) {
  nn::ModelConfig config;
  config.vit = nn::preset("vit-micro").config;
  config.vit.image_size = {16, 24};  // 4×6 patches
  config.vit.depth = 2;
  config.vit.width = 32;
  config.vit.heads = 2;
  config.vit.classes = 7;
  config.encoding = nn::EncodingSpec::parse(encoding);
  return config;
}

// A value of an option that is not its default.
std::vector<std::string> other_values(const nn::EncodingOption& option) {
  if (option.kind == nn::OptionKind::integer) return {"5"};
  if (option.kind == nn::OptionKind::number) return {"-0.7"};
  std::vector<std::string> values;
  for (const std::string& choice : option.choices) {
    if (choice != option.default_value) values.push_back(choice);
  }
  return values;
}

// Each encoding as it is, each option by itself, and some together.
std::vector<nn::EncodingSpec> every_option() {
  std::vector<nn::EncodingSpec> all = nn::parse_encoding_list(
      "rope2d+ape,lape+ape,sape2-qk[tables=per-head,gates=learnable,gain-mode=per-head,resize="
      "resample],"
      "sape2-rel-k[gates=open,tables=per-head,resize=extend],sape2-q[gates=open,bias=outside],"
      "sape2-rel-q[form=distance,resize=resample],sape2-qk[span=between,gates=open,resize=extend]");
  for (const nn::EncodingDefinition& definition : nn::encoding_definitions()) {
    all.push_back(nn::EncodingSpec::parse(definition.name));
    if (definition.name == "sape2-q" || definition.name == "sape2-rel-q") continue;
    for (const nn::EncodingOption& option : definition.options) {
      for (const std::string& value : other_values(option)) {
        all.push_back(
            nn::EncodingSpec::parse(definition.name + "[" + option.name + "=" + value + "]"));
      }
    }
  }
  return all;
}

class Cases {
 public:
  explicit Cases(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void add(const std::string& name, const nn::ModelConfig& config,
           onnx::ExportOptions options = {}) {
    const at::NoGradGuard no_grad;
    nn::ViT model(config, {.seed = 7});
    model.eval();
    // First values are too small for a mistake to show.
    for (at::Tensor& parameter : model.parameters()) {
      parameter.add_(0.1 * at::randn_like(parameter));
    }
    const nn::Size2d size = options.image_size.value_or(config.vit.image_size);
    const at::Tensor images = at::rand({3, config.vit.channels, size.height, size.width});
    at::Tensor input = images;
    if (options.normalise) {
      const auto per_channel = [](const std::vector<double>& values) {
        return at::tensor(values).to(at::kFloat).view({1, -1, 1, 1});
      };
      input = (images - per_channel(config.mean)) / per_channel(config.deviation);
    }
    onnx::export_model(model, folder_ / (name + ".onnx"), options);
    io::save_tensors(folder_ / (name + ".safetensors"),
                     {{"images", images}, {"logits", model.forward(input)}});
  }

 private:
  std::filesystem::path folder_;
};

void add_all(Cases& cases) {
  for (const nn::EncodingSpec& spec : every_option()) {
    const std::string text = spec.to_string();
    nn::ModelConfig config = small(text);
    cases.add(text, config);
    config.vit.pooling = nn::Pooling::class_token;
    config.vit.registers = 1;
    cases.add(text + " prefix, larger", config, {.image_size = nn::Size2d{28, 20}});
    cases.add(text + " prefix, smaller", config, {.image_size = nn::Size2d{8, 4}});
  }
  nn::ModelConfig config = small("sape2-rel-k+ape");
  config.vit.pooling = nn::Pooling::sequence;
  config.vit.registers = 2;
  config.vit.layer_scale = 0.1;
  config.vit.mlp_ratio = 2.5;
  cases.add("sequence pooling, layer scale", config);
  config.vit.pooling = nn::Pooling::mean;
  config.vit.channels = 1;
  config.vit.patch_size = {4, 2};
  config.mean = {0.4};
  config.deviation = {0.3};
  config.class_names = {"null", "Käse", "\"zwei\"", "3", "4", "5", "6"};
  for (std::int64_t opset = onnx::kOldestOpset; opset <= onnx::kNewestOpset; ++opset) {
    cases.add("opset " + std::to_string(opset), config, {.normalise = true, .opset = opset});
  }
}

}  // namespace
}  // namespace sape2

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const std::filesystem::path folder = arguments[1];
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  at::manual_seed(1);
  sape2::Cases cases(folder);
  sape2::add_all(cases);
}
