#include "io/model_tensors.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "io/shape_text.h"

namespace sape2::io {

void check_depth(const SafetensorsFile& file, const nn::ModelConfig& config) {
  if (static_cast<std::uint64_t>(config.vit.depth) <= file.tensors().size()) return;
  throw Error(in_quotes(file.path()) + " has " + std::to_string(file.tensors().size()) +
              " tensors, too few for its configuration's " + std::to_string(config.vit.depth) +
              " layers");
}

const TensorView& model_tensor(const SafetensorsFile& file, const std::string& name,
                               const std::vector<std::int64_t>& shape) {
  const TensorView* found = file.find(name);
  if (found == nullptr) {
    throw Error(in_quotes(file.path()) + " has no tensor " + in_quotes(name) +
                ", expected one of shape " + shape_text(shape));
  }
  if (found->shape != shape) {
    throw Error(in_quotes(file.path()) + ": tensor " + in_quotes(name) + " has the shape " +
                shape_text(found->shape) + ", expected " + shape_text(shape));
  }
  if (found->dtype != Dtype::f32 && found->dtype != Dtype::bf16) {
    throw Error(in_quotes(file.path()) + ": tensor " + in_quotes(name) + " has the dtype " +
                std::string(dtype_name(found->dtype)) + ", expected F32 or BF16");
  }
  return *found;
}

void refuse_other_tensors(const SafetensorsFile& file,
                          const std::function<bool(const std::string& name)>& is_wanted) {
  for (const TensorView& view : file.tensors()) {
    if (is_wanted(view.name)) continue;
    throw Error(in_quotes(file.path()) + " has the tensor " + in_quotes(view.name) + " of shape " +
                shape_text(view.shape) + ", which a model of its configuration does not have");
  }
}

}  // namespace sape2::io
