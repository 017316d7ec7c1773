// Shapes and types without values: what tracing, torch.compile and Meta tensors ask for.
#include "ops/backends/kept_vectors.h"
#include "ops/checks/checks.h"
#include "ops/dispatcher/internal_ops.h"
#include "ops/packed_heads.h"

#include <ATen/ATen.h>

namespace sape2::ops {
namespace {

template <class Arguments>
constexpr bool kIsAttention =
    !std::is_same_v<Arguments, VectorArguments> && !std::is_same_v<Arguments, BiasArguments>;

struct MetaBackend {
  static Tensors out_and_softmax(const Tensor& q) {
    const auto wide = q.options().dtype(compute_type(q));
    const auto sizes = q.sym_sizes();
    return {empty_output(q), at::empty_symint({sizes[0], sizes[1], sizes[2], 2}, wide)};
  }
  static Tensors forward(const BiasedArguments& a) { return out_and_softmax(a.q); }
  static Tensors forward(const Sape2Arguments& a) {
    auto outputs = out_and_softmax(a.vectors.q);
    outputs.push_back(empty_kept(a));
    return outputs;
  }
  static Tensors forward(const CopeArguments& a) { return out_and_softmax(a.q); }

  static Tensors forward(const VectorArguments& a) {
    const auto vectors = [&](int64_t length) {
      std::vector<c10::SymInt> shape = {a.q.sym_size(0), a.q.sym_size(1), a.grid.patches(), length};
      if (a.has_both()) shape.insert(shape.begin(), 2);
      return at::empty_symint(shape, a.q.options());
    };
    return {vectors(a.grid.cols), vectors(a.grid.rows)};
  }

  static Tensors forward(const BiasArguments& a) {
    const int64_t tokens = a.grid.tokens();
    return {
        at::empty_symint({a.ux.sym_size(-4), a.ux.sym_size(-3), tokens, tokens}, a.ux.options())};
  }

  template <class Arguments>
  static Tensors backward(const BackwardInputs& in, const Arguments& a) {
    const auto tensors = a.tensors();
    Tensors all;
    for (const Tensor* tensor : tensors)
      all.push_back(tensor->defined() ? at::empty_like(*tensor, at::MemoryFormat::Contiguous)
                                      : Tensor());
    if constexpr (kIsAttention<Arguments>) {
      const auto heads = empty_like_heads(*tensors[0], *tensors[1], *tensors[2], in.may_share());
      std::copy(heads.begin(), heads.end(), all.begin());
    }
    Tensors gradients;
    for (size_t index = 0; index < tensors.size(); ++index)
      if (in.wants(index)) gradients.push_back(all[index]);
    return gradients;
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(sape2, Meta, m) {
  Kernels<MetaBackend>::implement(m);
}

}  // namespace sape2::ops
