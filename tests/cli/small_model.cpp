#include "cli/small_model.h"

#include "sape2/data/image.h"
#include "sape2/data/shapes.h"
#include "sape2/io/model_file.h"
#include "sape2/nn/vit.h"

#include <fstream>

namespace sape2::cli::test {
namespace fs = std::filesystem;
using sape2::testing::ScratchFolder;

fs::path save_model(const ScratchFolder& folder) {
  const auto shapes = data::make_shapes({.split = data::Split::test, .count = 1});
  nn::ModelConfig config;
  config.vit.depth = 1;
  config.vit.width = 16;
  config.vit.heads = 2;
  config.class_names = shapes.dataset.class_names;
  const auto path = folder / "best.safetensors";
  io::save_model(path, nn::ViT(config));
  return path;
}

fs::path save_picture(const ScratchFolder& folder, const std::string& name) {
  data::write_png(folder / name, {40, 50, 3, std::vector<std::uint8_t>(40 * 50 * 3, 77)});
  return folder / name;
}

bool is_png(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  char head[8] = {};
  stream.read(head, sizeof head);
  return std::string(head, sizeof head) == "\x89PNG\r\n\x1a\n";
}

}  // namespace sape2::cli::test
