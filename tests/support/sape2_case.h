#pragma once

#include "support/golden.h"

namespace sape2::testing {

/// A golden SaPE² case in one type, ready for the operators: settings as options, inputs as leaves
/// that require gradients.
struct Sape2Case {
  Sape2Case(const GoldenCase& golden, at::ScalarType type);

  at::Tensor attention() const;
  at::Tensor bias() const;
  std::pair<at::Tensor, at::Tensor> vectors() const;

  ops::Grid grid;
  ops::VectorOptions vector_options;
  ops::BiasOptions bias_options;
  std::string form;
  std::map<std::string, at::Tensor> leaves;  ///< by the golden file's names
  at::Tensor q, k, v, ex, ey;                ///< made of the leaves
};

}  // namespace sape2::testing
