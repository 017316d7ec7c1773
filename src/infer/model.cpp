#include "sape2/infer/model.h"

#include "infer/network.h"

namespace sape2::infer {

Model Model::open(const std::filesystem::path& path, const ModelOptions& options) {
  return Model(std::make_shared<const Network>(io::SafetensorsFile::open(path), options));
}

Model Model::from_memory(std::span<const std::byte> file, std::string_view name,
                         const ModelOptions& options) {
  return Model(std::make_shared<const Network>(io::SafetensorsFile::view(file, name), options));
}

const nn::ModelConfig& Model::config() const {
  return network_->config();
}

std::size_t Model::bytes() const {
  return network_->bytes();
}

Arithmetic Model::arithmetic() const {
  return network_->arithmetic();
}

}  // namespace sape2::infer
