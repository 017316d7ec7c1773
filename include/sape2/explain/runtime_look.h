#pragma once

#include "sape2/explain/input.h"
#include "sape2/explain/look.h"
#include "sape2/infer/inspection.h"
#include "sape2/infer/session.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace sape2::explain {

/// A look through the runtime without LibTorch.
class RuntimeLook : public Look {
 public:
  /// The session is needed during construction only.
  RuntimeLook(infer::Session& session, const data::Image& image, const InputSize& size = {},
              std::int64_t most_patches = kMostPatches);

  std::size_t bytes() const override;

 private:
  infer::AttentionRows layer_rows(std::int64_t layer,
                                  std::span<const std::int64_t> patches) const override;

  infer::Inspection inspection_;
};

}  // namespace sape2::explain
