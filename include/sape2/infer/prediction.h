#pragma once

#include "sape2/base/error.h"
#include "sape2/infer/session.h"
#include "sape2/nn/model_config.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sape2::data {
struct Image;
}

/// From pictures to classes, as `sape2 predict` does it.
namespace sape2::infer {

/// Logits that are not finite numbers: weights or normalisation of the model are damaged.
class NotFinite : public Error {
 public:
  using Error::Error;
};

/// Throws NotFinite if a logit is not a finite number.
void require_finite(std::span<const float> logits);

struct Prediction {
  std::int64_t index = 0;  ///< of the class
  std::string name;        ///< of the class; "class 7" if the model has no names
  double probability = 0;
};

/// A class's name; "class 7" if the model has no names.
std::string class_name(const nn::ModelConfig& config, std::int64_t index);

/// A picture as the model takes it, (channels, height, width): scaled until it covers `size`, its
/// middle cut out, grey if the model has one channel, and normalised. Throws Error with one
/// sentence if `pixels` has not the room for it.
void prepare_picture(const nn::ModelConfig& config, const data::Image& picture, nn::Size2d size,
                     std::span<float> pixels);

/// The classes that logits (classes) make probable, the best first: all, or the best `top`. Throws
/// NotFinite if a logit is not a finite number.
std::vector<Prediction> ranked(const nn::ModelConfig& config, std::span<const float> logits,
                               std::int64_t top = 0);

/// The most probable classes of a picture, scaled to cover `size` × `size` pixels (0: the size the
/// model was trained at).
std::vector<Prediction> predict(Session& session, const data::Image& picture, std::int64_t top = 0,
                                std::int64_t size = 0);

}  // namespace sape2::infer
