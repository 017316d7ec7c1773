#pragma once

#include "sape2/nn/encoding_spec.h"
#include "sape2/nn/vit_config.h"

#include "cli/bench/infer/infer_contestant.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sape2::cli {

inline constexpr std::int64_t kInferBatches[] = {1, 8, 64};

/// A preset at a size, written PRESET:SIZE/PATCH.
struct InferCase {
  std::string text;
  nn::ViTConfig vit;

  static InferCase parse(const std::string& text);
};

/// What was found out about one contestant.
struct InferRow {
  std::string name;
  std::map<std::int64_t, double> milliseconds;  ///< by batch, medians
  std::optional<StartUp> start_up;
  std::int64_t bytes_on_disk = 0;
  double difference = 0;  ///< of its logits from those of the runtime in float32
};

struct InferFigures {
  std::vector<InferRow> rows;       ///< the first is the runtime's
  double product_milliseconds = 0;  ///< of one image, see product_floor.h
};

/// Contestants take turns, so often each. `peers` is how bench/infer/peers.py is started, empty if
/// it is not.
InferFigures measure_inference(const InferCase& wanted, const nn::EncodingSpec& encoding,
                               int rounds, const std::string& peers);

}  // namespace sape2::cli
