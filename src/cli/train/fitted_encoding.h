#pragma once

#include "sape2/nn/encoding_spec.h"

#include "cli/terminal.h"

namespace sape2::cli {

/// Says so where a trained model gets an encoding in another form than was asked for (see
/// nn::retrofitted()).
inline void say_fitted(const Terminal& terminal, const nn::EncodingSpec& asked,
                       const nn::EncodingSpec& fitted) {
  if (asked == fitted) return;
  terminal.print(asked.to_string() + " is added as " + fitted.to_string() +
                 ": its gain starts at 0 and is learnt, so that the model can begin unchanged");
}

}  // namespace sape2::cli
