#include "sape2/kernels/cuda.h"

#include "ops/backends/kept_vectors.h"
#include "ops/backends/kernel_arguments.h"
#include "ops/backends/kernel_views.h"
#include "ops/backends/reference_backend.h"
#include "ops/packed_heads.h"
#include "ops/reference_guard.h"
#include "ops/sizes.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/EmptyTensor.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

namespace sape2::ops {
namespace {

namespace cuda = kernels::cuda;

bool type_fits(const Tensor& q) {
  const auto type = q.scalar_type();
  return !reference_only() && (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
}

cuda::Call call_of(cuda::Operator op, const Tensor& q, const Grid& grid) {
  cuda::Call call;
  call.op = op;
  call.shape = kernel_shape(q, grid);
  call.dtype = kernel_type(q);
  return call;
}

bool fused(const BiasedArguments& a) {
  if (!type_fits(a.q) || !has_kernel(a.form)) return false;
  if (a.form == Form::none)
    return cuda::refusal(call_of(cuda::Operator::plain, a.q, grid_of(a))).empty();
  auto call = call_of(cuda::Operator::axis_bias, a.q, a.grid);
  call.form = kernel_form(a.form);
  call.source = a.ux.dim() == 5 ? kernels::Source::qk : kernels::Source::k;
  return a.ux.scalar_type() == a.q.scalar_type() && cuda::refusal(call).empty();
}

/// What of a call with stage 1 its sizes say.
cuda::Call stage1_call(cuda::Operator op, const VectorArguments& a) {
  auto call = call_of(op, a.q, a.grid);
  const auto encoding = encoding_of(a);
  call.source = encoding.source;
  call.span = encoding.span;
  call.positions = encoding.positions;
  return call;
}

bool fused(const VectorArguments& a) {
  return type_fits(a.q) && cuda::refusal(stage1_call(cuda::Operator::axis_vectors, a)).empty();
}

bool fused(const Sape2Arguments& a) {
  if (!type_fits(a.vectors.q) || !has_kernel(a.form)) return false;
  auto call = stage1_call(cuda::Operator::sape2, a.vectors);
  call.form = kernel_form(a.form);
  return cuda::refusal(call).empty();
}

bool fused(const CopeArguments& a) {
  return type_fits(a.q) &&
         cuda::refusal(call_of(cuda::Operator::cope, a.q, in_one_row(a.q))).empty();
}

/// Scratch memory from LibTorch's allocator, on its current stream.
class Workspace {
 public:
  explicit Workspace(std::size_t bytes)
      : data_(bytes == 0 ? c10::DataPtr()
                         : c10::cuda::CUDACachingAllocator::get()->allocate(bytes)),
        bytes_(bytes) {}
  cuda::Launch launch() const {
    return {at::cuda::getCurrentCUDAStream().stream(), data_.get(), bytes_};
  }

 private:
  c10::DataPtr data_;
  std::size_t bytes_;
};

/// A new tensor on q's device. Past the dispatcher, whose way to the same takes twice as long:
/// small calls wait for the host.
Tensor empty_beside(const Tensor& q, at::IntArrayRef sizes, at::ScalarType type) {
  return at::detail::empty_cuda(sizes, type, q.device(), {});
}

/// A number or one for each head as (h) float32; undefined where the kernels' own will do.
Tensor per_head_floats(const Tensor& value, const Tensor& q) {
  return value.defined() ? as_floats_per_head(value, q) : value;
}

/// PyTorch's own switch: torch.backends.cuda.matmul.allow_tf32 and its successors.
bool tf32_is_on() {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 9)
  return at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
         at::Float32Precision::TF32;
#else
  return at::globalContext().allowTF32CuBLAS();
#endif
}

struct Inputs : HeldInputs {
  Inputs(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in, const Grid& grid, double scale)
      : HeldInputs(q_in, k_in, v_in, grid, scale,
                   q_in.scalar_type() == at::kFloat && tf32_is_on()) {}
};

struct Outputs : HeldOutputs {
  explicit Outputs(const Tensor& q)
      : HeldOutputs(q, empty_beside(q, {q.size(0), q.size(1), q.size(2), 2}, at::kFloat)) {}
};

/// The kernels always write dq, dk and dv.
kernels::AttentionGradients qkv_gradients(Gradients& gradients, const Inputs& inputs) {
  const auto all = empty_like_heads(inputs.q, inputs.k, inputs.v, gradients.may_share());
  return {view(gradients.keep(0, all[0], inputs.q)), view(gradients.keep(1, all[1], inputs.k)),
          view(gradients.keep(2, all[2], inputs.v))};
}

struct EncodingParameters : HeldEncoding {
  explicit EncodingParameters(const VectorArguments& a)
      : HeldEncoding(a, per_head_floats(a.gate_scale, a.q), per_head_floats(a.gate_offset, a.q)) {}
};

/// Where the kernels find the vectors they keep: what they were asked to keep is theirs to say.
void* kept_data(const Sape2Arguments& a, const Tensor& vectors) {
  if (a.kept == 0) return nullptr;
  const auto& q = a.vectors.q;
  TORCH_CHECK_VALUE(
      a.kept == bytes_cuda_keeps(a) && vectors.numel() == q.size(0) * q.size(1) * a.kept,
      "sape2: ", vectors.numel(), " bytes of axis vectors are kept, ", a.kept, " a head; none or ",
      bytes_cuda_keeps(a), " a head were expected");
  return vectors.data_ptr();
}

kernels::CopeEncoding cope_encoding(const CopeArguments& a, const Tensor& table) {
  return {table.size(0), floats(table), float(a.scale), false};
}

struct GivenVectors : HeldVectors {
  explicit GivenVectors(const BiasedArguments& a)
      : HeldVectors(a), gain(per_head_floats(a.gain, a.q)), bias{floats(gain), a.bias_inside} {}
  Tensor gain;
  kernels::Bias bias;
};

/// The fused kernels on NVIDIA GPUs, for float32, bfloat16 and float16; everything else, and
/// everything while a ReferenceGuard lives, runs on the plain formulas.
struct CudaBackend {
  static Tensors forward(const BiasedArguments& a) {
    if (!fused(a)) return ReferenceBackend::forward(a);
    const c10::cuda::CUDAGuard guard(a.q.device());
    const Inputs inputs(a.q, a.k, a.v, grid_of(a), a.scale);
    const Outputs outputs(a.q);
    if (a.form == Form::none) {
      const Workspace workspace(cuda::plain_attention_workspace(inputs.params, false));
      cuda::plain_attention_forward(inputs.params, outputs.params, workspace.launch());
    } else {
      const GivenVectors given(a);
      const auto form = kernel_form(a.form);
      const Workspace workspace(
          cuda::axis_bias_attention_workspace(inputs.params, given.params, form, false));
      cuda::axis_bias_attention_forward(inputs.params, given.params, form, given.bias,
                                        outputs.params, workspace.launch());
    }
    return {outputs.out, outputs.softmax};
  }

  static Tensors backward(const BackwardInputs& in, const BiasedArguments& a) {
    if (!fused(a)) return ReferenceBackend::backward(in, a);
    const c10::cuda::CUDAGuard guard(a.q.device());
    const Inputs inputs(a.q, a.k, a.v, grid_of(a), a.scale);
    const HeldSaved saved(in);
    Gradients gradients(in, empty_beside);
    const auto qkv = qkv_gradients(gradients, inputs);
    if (a.form == Form::none) {
      const Workspace workspace(cuda::plain_attention_workspace(inputs.params, true));
      cuda::plain_attention_backward(inputs.params, saved.params, qkv, workspace.launch());
      return gradients.list();
    }
    const GivenVectors given(a);
    const auto form = kernel_form(a.form);
    const kernels::AxisVectorGradients vectors{
        data(gradients.like(3, given.ux)), data(gradients.like(4, given.uy)),
        floats(gradients.floats_like(5, a.gain, {a.q.size(1)}))};
    const Workspace workspace(
        cuda::axis_bias_attention_workspace(inputs.params, given.params, form, true));
    cuda::axis_bias_attention_backward(inputs.params, given.params, form, given.bias, saved.params,
                                       qkv, vectors, workspace.launch());
    return gradients.list();
  }

  static Tensors forward(const Sape2Arguments& a) {
    const auto& s = a.vectors;
    if (!fused(a)) return ReferenceBackend::forward(a);
    const c10::cuda::CUDAGuard guard(s.q.device());
    const Inputs inputs(s.q, s.k, a.v, s.grid, a.scale);
    const EncodingParameters encoding(s);
    const auto gain = per_head_floats(a.gain, s.q);
    const Outputs outputs(s.q);
    const auto form = kernel_form(a.form);
    const auto vectors = empty_kept(a);
    auto params = outputs.params;
    params.stage1 = kept_data(a, vectors);
    const Workspace workspace(
        cuda::sape2_attention_workspace(inputs.params, encoding.params, form, false, a.kept > 0));
    cuda::sape2_attention_forward(inputs.params, encoding.params, form,
                                  {floats(gain), a.bias_inside}, params, workspace.launch());
    return {outputs.out, outputs.softmax, vectors};
  }

  static Tensors backward(const BackwardInputs& in, const Sape2Arguments& a) {
    const auto& s = a.vectors;
    if (!fused(a)) return ReferenceBackend::backward(in, a);
    const c10::cuda::CUDAGuard guard(s.q.device());
    const Inputs inputs(s.q, s.k, a.v, s.grid, a.scale);
    const EncodingParameters encoding(s);
    const auto gain = per_head_floats(a.gain, s.q);
    const HeldSaved saved(in);
    const auto vectors = in.outputs[2].contiguous();
    auto saved_params = saved.params;
    saved_params.stage1 = kept_data(a, vectors);
    Gradients gradients(in, empty_beside);
    const auto qkv = qkv_gradients(gradients, inputs);
    const auto parameters = encoding_gradients(gradients, 3, s);
    const auto dgain = floats(gradients.floats_like(7, a.gain, {s.q.size(1)}));
    const auto form = kernel_form(a.form);
    const Workspace workspace(
        cuda::sape2_attention_workspace(inputs.params, encoding.params, form, true, a.kept > 0));
    cuda::sape2_attention_backward(inputs.params, encoding.params, form,
                                   {floats(gain), a.bias_inside}, saved_params, qkv, parameters,
                                   dgain, workspace.launch());
    return gradients.list();
  }

  static Tensors forward(const VectorArguments& a) {
    if (!fused(a)) return ReferenceBackend::forward(a);
    const c10::cuda::CUDAGuard guard(a.q.device());
    const auto q = with_contiguous_rows(a.q), k = with_contiguous_rows(a.k);
    const EncodingParameters encoding(a);
    const auto empty = [&](int64_t length) {
      std::vector<int64_t> shape = {q.size(0), q.size(1), a.grid.patches(), length};
      if (a.has_both()) shape.insert(shape.begin(), 2);
      return empty_beside(q, shape, q.scalar_type());
    };
    const auto ux = empty(a.grid.cols), uy = empty(a.grid.rows);
    cuda::sape2_vectors_forward(
        {kernel_shape(q, a.grid), kernel_type(q), const_view(q), const_view(k)}, encoding.params,
        {ux.data_ptr(), uy.data_ptr()}, Workspace(0).launch());
    return {ux, uy};
  }

  static Tensors backward(const BackwardInputs& in, const VectorArguments& a) {
    if (!fused(a)) return ReferenceBackend::backward(in, a);
    const c10::cuda::CUDAGuard guard(a.q.device());
    const auto q = with_contiguous_rows(a.q), k = with_contiguous_rows(a.k);
    const EncodingParameters encoding(a);
    const auto dux = in.grads[0].contiguous(), duy = in.grads[1].contiguous();
    Gradients gradients(in, empty_beside);
    const auto dq = view(gradients.keep(0, empty_beside(q, q.sizes(), q.scalar_type()), q));
    const auto dk = view(gradients.keep(1, empty_beside(k, k.sizes(), k.scalar_type()), k));
    const auto parameters = encoding_gradients(gradients, 2, a);
    const kernels::VectorInputs inputs{kernel_shape(q, a.grid), kernel_type(q), const_view(q),
                                       const_view(k)};
    const Workspace workspace(cuda::sape2_vectors_workspace(inputs, encoding.params));
    cuda::sape2_vectors_backward(inputs, encoding.params, {dux.data_ptr(), duy.data_ptr()},
                                 {dq, dk}, parameters, workspace.launch());
    return gradients.list();
  }

  static Tensors forward(const CopeArguments& a) {
    if (!fused(a)) return ReferenceBackend::forward(a);
    const c10::cuda::CUDAGuard guard(a.q.device());
    const Inputs inputs(a.q, a.k, a.v, in_one_row(a.q), a.scale);
    const auto table = as_floats(a.e);
    const auto encoding = cope_encoding(a, table);
    const Outputs outputs(a.q);
    const Workspace workspace(cuda::cope_attention_workspace(inputs.params, encoding, false));
    cuda::cope_attention_forward(inputs.params, encoding, outputs.params, workspace.launch());
    return {outputs.out, outputs.softmax};
  }

  static Tensors backward(const BackwardInputs& in, const CopeArguments& a) {
    if (!fused(a)) return ReferenceBackend::backward(in, a);
    const c10::cuda::CUDAGuard guard(a.q.device());
    const Inputs inputs(a.q, a.k, a.v, in_one_row(a.q), a.scale);
    const auto table = as_floats(a.e);
    const auto encoding = cope_encoding(a, table);
    const HeldSaved saved(in);
    Gradients gradients(in, empty_beside);
    const auto qkv = qkv_gradients(gradients, inputs);
    const auto dtable = floats(gradients.floats_like(3, a.e, a.e.sizes()));
    const Workspace workspace(cuda::cope_attention_workspace(inputs.params, encoding, true));
    cuda::cope_attention_backward(inputs.params, encoding, saved.params, qkv, dtable,
                                  workspace.launch());
    return gradients.list();
  }

  // The stored bias has the plain formula as its only implementation here.
  static Tensors forward(const BiasArguments& a) { return ReferenceBackend::forward(a); }
  static Tensors backward(const BackwardInputs& in, const BiasArguments& a) {
    return ReferenceBackend::backward(in, a);
  }
};

}  // namespace

int64_t bytes_cuda_keeps(const Sape2Arguments& a) {
  const auto& s = a.vectors;
  if (!type_fits(s.q) || !at::hasCUDA()) return 0;
  const c10::cuda::CUDAGuard guard(s.q.device());
  // The number of images may be open, see sizes.h; of one image all is known.
  const int64_t heads = size_of(s.q, 1);
  kernels::AttentionInputs inputs;
  inputs.shape = {1, heads, s.grid.rows, s.grid.cols, s.grid.prefix, size_of(s.q, 3)};
  inputs.dtype = kernel_type(s.q);
  inputs.scale = float(a.scale);
  const auto form = kernel_form(a.form);
  cuda::Call call;
  call.shape = inputs.shape;
  call.dtype = inputs.dtype;
  call.form = form;
  const auto encoding = encoding_of(s);
  call.source = encoding.source;
  call.span = encoding.span;
  call.positions = encoding.positions;
  if (!cuda::refusal(call).empty()) return 0;
  return static_cast<int64_t>(cuda::sape2_attention_stage1_bytes(inputs, encoding, form)) / heads;
}

TORCH_LIBRARY_IMPL(sape2, CUDA, m) {
  Kernels<CudaBackend>::implement(m);
}

}  // namespace sape2::ops
