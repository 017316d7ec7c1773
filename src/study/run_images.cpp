#include "study/run_images.h"

namespace sape2::study {

const train::RunData& RunImages::of(const train::DataConfig& data) {
  if (data.held_out != held_out_) {
    data_ = data.held_out > 0 ? train::hold_out(training_, data.held_out)
                              : train::RunData{training_, train::load_split(data, data::Split::test,
                                                                            training_.target())};
    held_out_ = data.held_out;
  }
  return data_;
}

}  // namespace sape2::study
