#pragma once

#include "sape2/explain/input.h"
#include "sape2/explain/look.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace sape2::nn {
class ViT;
}  // namespace sape2::nn

namespace sape2::explain {

/// A look through nn::ViT, by the code that trains: q and k of every layer are kept, and rows are
/// computed from them on demand. Values are float32, on the CPU.
class Inspection : public Look {
 public:
  Inspection(std::shared_ptr<nn::ViT> model, const data::Image& image, const InputSize& size = {},
             std::int64_t most_patches = kMostPatches);
  ~Inspection() override;
  Inspection(Inspection&&) noexcept;
  Inspection& operator=(Inspection&&) noexcept;

  /// values() as a tensor `[patches, rows·cols]`.
  at::Tensor rows(What what, const Selection& selection, const std::vector<Patch>& patches) const;

  /// All patches against all, `[n, n]`; if there are more than `most` patches, means over square
  /// blocks of them. Works through the rows in pieces.
  at::Tensor matrix(What what, const Selection& selection, std::int64_t most) const;

  std::size_t bytes() const override;

 private:
  struct Layer;

  infer::AttentionRows layer_rows(std::int64_t layer,
                                  std::span<const std::int64_t> patches) const override;

  std::shared_ptr<nn::ViT> model_;
  std::vector<Layer> layers_;
};

}  // namespace sape2::explain
