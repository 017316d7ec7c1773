// Shapes and types without values: what tracing, torch.compile and Meta tensors ask for.
#include "ops/checks.h"
#include "ops/internal_ops.h"

#include <ATen/ATen.h>

namespace sape2::ops {
namespace {

struct MetaBackend {
  static Tensors out_and_softmax(const Tensor& q) {
    const auto wide = q.options().dtype(compute_type(q));
    return {at::empty_like(q, at::MemoryFormat::Contiguous),
            at::empty({q.size(0), q.size(1), q.size(2), 2}, wide)};
  }
  static Tensors forward(const BiasedArguments& a) { return out_and_softmax(a.q); }
  static Tensors forward(const Sape2Arguments& a) { return out_and_softmax(a.vectors.q); }
  static Tensors forward(const CopeArguments& a) { return out_and_softmax(a.q); }

  static Tensors forward(const VectorArguments& a) {
    const auto vectors = [&](int64_t length) {
      std::vector<int64_t> shape = {a.q.size(0), a.q.size(1), a.grid.patches(), length};
      if (a.has_both()) shape.insert(shape.begin(), 2);
      return at::empty(shape, a.q.options());
    };
    return {vectors(a.grid.cols), vectors(a.grid.rows)};
  }

  static Tensors forward(const BiasArguments& a) {
    const int64_t tokens = a.grid.tokens();
    return {at::empty({a.ux.size(-4), a.ux.size(-3), tokens, tokens}, a.ux.options())};
  }

  template <class Arguments>
  static Tensors backward(const BackwardInputs& in, const Arguments& given) {
    Arguments a = given;
    const auto tensors = a.tensors();
    Tensors gradients;
    for (size_t index = 0; index < tensors.size(); ++index)
      if (in.wants(index))
        gradients.push_back(at::empty_like(*tensors[index], at::MemoryFormat::Contiguous));
    return gradients;
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(sape2, Meta, m) {
  Kernels<MetaBackend>::implement(m);
}

}  // namespace sape2::ops
