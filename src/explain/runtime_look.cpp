#include "sape2/explain/runtime_look.h"

#include <vector>

namespace sape2::explain {
namespace {

// The image as it is, which has the model's size already.
infer::Inspection inspected(infer::Session& session, const data::Image& image) {
  const nn::ModelConfig& config = session.model().config();
  std::vector<float> pixels(
      static_cast<std::size_t>(config.vit.channels * image.height * image.width));
  infer::prepare_picture(config, image, {image.height, image.width}, pixels);
  return {session, {pixels.data(), 1, image.height, image.width}};
}

}  // namespace

RuntimeLook::RuntimeLook(infer::Session& session, const data::Image& image, const InputSize& size,
                         std::int64_t most_patches)
    : Look(session.model().config(),
           fit_image(image, session.model().config().vit, size, most_patches)),
      inspection_(inspected(session, this->image())) {
  saw(inspection_.features(), inspection_.logits());
}

infer::AttentionRows RuntimeLook::layer_rows(std::int64_t layer,
                                             std::span<const std::int64_t> patches) const {
  return inspection_.rows(layer, patches);
}

std::size_t RuntimeLook::bytes() const {
  return Look::bytes() + inspection_.bytes();
}

}  // namespace sape2::explain
