#pragma once

#include "sape2/train/run_config.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sape2::nn {
class ViT;
}

/// The paper's claims about a position encoding, as measurements on a trained model.
namespace sape2::study {

struct ProbeOptions {
  /// Images for the probes of sizes, translation and gates; `shapes` is generated for the others.
  train::DataConfig data;
  /// Images each probe looks at.
  std::int64_t images = 500;
};

struct ProbeRow {
  std::string label;
  std::vector<double> values;  ///< one a column; NaN if it means nothing
};

struct ProbeTable {
  std::string title;
  std::vector<std::string> columns;  ///< the first names the labels
  std::vector<ProbeRow> rows = {};
};

struct ProbeResult {
  std::string name;
  std::string question;  ///< what is measured, in words
  std::vector<ProbeTable> tables = {};
  std::string reading;  ///< what the figures say, or why nothing was measured
};

/// `sizes`, `scale`, `translation`, `region`, `gates`.
const std::vector<std::string>& probe_names();

/// Runs one probe. Throws Error for an unknown name and for data the model cannot take.
ProbeResult run_probe(const std::string& name, nn::ViT& model, const ProbeOptions& options);

}  // namespace sape2::study
