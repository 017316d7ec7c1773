#pragma once

#include "sape2/nn/encoding.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace torch::nn {
class Module;
}

namespace sape2::cli {

/// A grid and how many heads of it: `ROWSxCOLS:IMAGESxHEADS`.
struct AttentionShape {
  std::int64_t rows = 0, cols = 0, images = 0, heads = 0;

  static AttentionShape parse(std::string_view text);
  std::string to_string() const;
  std::int64_t tokens() const { return rows * cols; }
};

/// One line of the table: what is computed.
struct AttentionCase {
  AttentionShape shape;
  std::int64_t head_size = 64;
  std::string dtype = "float32";
  bool backward = true;
  nn::EncodingSpec encoding;
  std::string device = "cpu";

  std::string pass() const { return backward ? "forward+backward" : "forward"; }
  /// Floating-point operations of the matrix products that attention without a bias needs.
  double plain_operations() const;
  /// What attention without a bias must at least read and write.
  double plain_bytes() const;
  /// A guess at what the reference path holds at once.
  double reference_bytes() const;
};

/// float32, bfloat16 or float16.
at::ScalarType scalar_type_named(const std::string& dtype);

/// The ways to compute a case.
enum class AttentionPath { fused, reference, plain };

/// A case with its tensors, ready to run again and again.
class AttentionRunner {
 public:
  explicit AttentionRunner(const AttentionCase& wanted);
  ~AttentionRunner();

  void run(AttentionPath path);
  /// Lets go of what the last run left behind.
  void clear() { gradients_.clear(); }

 private:
  at::Tensor forward(AttentionPath path) const;

  AttentionCase case_;
  at::Tensor q_, k_, v_, dout_;
  std::vector<at::Tensor> leaves_, gradients_;
  std::unique_ptr<torch::nn::Module> parameters_;
  std::unique_ptr<nn::Encoding> encoding_;
  std::unique_ptr<nn::LayerEncoding> layer_;
};

}  // namespace sape2::cli
