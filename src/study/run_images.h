#pragma once

#include "sape2/train/run.h"

namespace sape2::study {

/// The images of a comparison's runs. Test images are read when a run first asks for them; a trial
/// of the tuning never does.
class RunImages {
 public:
  explicit RunImages(const data::Dataset& training) : training_(training) {}

  /// What a run of that configuration learns from and is tested on.
  const train::RunData& of(const train::DataConfig& data);

 private:
  const data::Dataset& training_;
  std::int64_t held_out_ = -1;  // of what is in `data_`; −1: nothing is
  train::RunData data_;
};

}  // namespace sape2::study
