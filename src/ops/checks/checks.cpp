#include "ops/checks/checks.h"

#include "sape2/base/in_quotes.h"

#include "ops/packed_heads.h"
#include "ops/sizes.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <limits>

namespace sape2::ops {
namespace {

/// A tensor as an error message names it: "q [2, 3, 64, 16]".
std::string shown(const char* name, const at::Tensor& tensor) {
  std::string text = std::string(name) + " [";
  for (int64_t axis = 0; axis < tensor.dim(); ++axis)
    text += (axis ? ", " : "") + std::to_string(size_of(tensor, axis));
  return text + "]";
}

void check_defined(const char* op, const char* name, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), op, ": ", name,
                    " is an undefined tensor; a tensor was expected");
  TORCH_CHECK_TYPE(!tensor.is_nested(), op, ": ", name,
                   " is nested; one dense tensor was expected");
  TORCH_CHECK_TYPE(tensor.layout() == at::kStrided, op, ": ", name, " is ", tensor.layout(),
                   "; a dense tensor was expected");
}

void check_type(const char* op, const char* name, const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  TORCH_CHECK_TYPE(!(type == at::kHalf && tensor.device().is_cpu()), op, ": ", name,
                   " is float16, which is not supported on the CPU; use bfloat16 or float32");
  TORCH_CHECK_TYPE(
      type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf, op,
      ": ", name, " is ", type, "; float32, float64, bfloat16 or (on a GPU) float16 was expected");
}

/// q itself: the tensor that all others are held against.
void check_q(const char* op, const at::Tensor& q) {
  check_defined(op, "q", q);
  TORCH_CHECK_VALUE(q.dim() == 4, op, ": ", shown("q", q), " has ", q.dim(),
                    " axes; [images, heads, tokens, head size] was expected");
  check_type(op, "q", q);
  TORCH_CHECK_VALUE(size_of(q, 1) > 0 && size_of(q, 2) > 0 && size_of(q, 3) > 0, op, ": ",
                    shown("q", q), " has an empty axis; only the number of images may be 0");
}

void check_same_device(const char* op, const char* name, const at::Tensor& tensor,
                       const at::Tensor& q) {
  TORCH_CHECK_VALUE(tensor.device() == q.device(), op, ": ", name, " is on ", tensor.device(),
                    " but q is on ", q.device(), "; move both to one device");
}

void check_like_q(const char* op, const char* name, const at::Tensor& tensor, const at::Tensor& q) {
  check_defined(op, name, tensor);
  TORCH_CHECK_VALUE(tensor.sym_sizes() == q.sym_sizes(), op, ": ", shown(name, tensor),
                    " differs in shape from ", shown("q", q), "; q, k and v must be alike");
  TORCH_CHECK_TYPE(tensor.scalar_type() == q.scalar_type(), op, ": ", name, " is ",
                   tensor.scalar_type(), " but q is ", q.scalar_type(),
                   "; q, k and v must be of one type");
  check_same_device(op, name, tensor, q);
}

/// Parameters may be of q's type or, as under autocast, of float32.
void check_parameter_type(const char* op, const char* name, const at::Tensor& tensor,
                          const at::Tensor& q) {
  const auto type = q.scalar_type(), wide = compute_type(q);
  const std::string or_wide = type == wide ? "" : std::string(" or ") + c10::toString(wide);
  TORCH_CHECK_TYPE(tensor.scalar_type() == type || tensor.scalar_type() == wide, op, ": ", name,
                   " is ", tensor.scalar_type(), " where q is ", type, "; ", type, or_wide,
                   " was expected");
  check_same_device(op, name, tensor, q);
}

void check_per_head(const char* op, const char* name, const at::Tensor& tensor,
                    const at::Tensor& q) {
  if (!tensor.defined()) return;
  check_defined(op, name, tensor);
  const bool fits = tensor.dim() == 0 || (tensor.dim() == 1 && size_of(tensor, 0) == size_of(q, 1));
  TORCH_CHECK_VALUE(fits, op, ": ", shown(name, tensor),
                    " is neither one number nor one for each of q's ", size_of(q, 1),
                    " heads; shape [] or [", size_of(q, 1), "] was expected");
  check_parameter_type(op, name, tensor, q);
}

void check_at_least(const char* op, const Grid& grid) {
  TORCH_CHECK_VALUE(grid.rows >= 1, op, ": rows is ", grid.rows, "; at least 1 was expected");
  TORCH_CHECK_VALUE(grid.cols >= 1, op, ": cols is ", grid.cols, "; at least 1 was expected");
  TORCH_CHECK_VALUE(grid.prefix >= 0, op, ": prefix is ", grid.prefix,
                    "; the number of prefix tokens, 0 or more, was expected");
}

void check_grid(const char* op, const char* name, const at::Tensor& tokens, const Grid& grid) {
  check_at_least(op, grid);
  const int64_t tokens_there = size_of(tokens, 2);
  // Division instead of rows·cols, which a hostile value could overflow.
  const int64_t patches = tokens_there - grid.prefix;
  const bool fits = patches >= 1 && patches % grid.rows == 0 && patches / grid.rows == grid.cols;
  TORCH_CHECK_VALUE(fits, op, ": ", shown(name, tokens), " has ", tokens_there,
                    " tokens, but prefix + rows·cols is ", grid.prefix, " + ", grid.rows, "·",
                    grid.cols, "; give the grid these tokens came from");
}

void check_choice(const char* op, const char* name, const std::string& value,
                  std::initializer_list<const char*> choices) {
  std::string list;
  for (const char* choice : choices) {
    if (value == choice) return;
    list += std::string(list.empty() ? "\"" : ", \"") + choice + "\"";
  }
  TORCH_CHECK_VALUE(false, op, ": ", name, " is ", in_quotes(value), "; one of ", list,
                    " was expected");
}

void check_table_rows(const char* op, const std::string& span, int64_t rows) {
  if (span == "suffix") {
    TORCH_CHECK_VALUE(rows >= 2, op, ": ex and ey have M = ", rows,
                      " rows; span \"suffix\" needs at least 2");
  } else {
    TORCH_CHECK_VALUE(rows % 2 == 1, op, ": ex and ey have M = ", rows,
                      " rows; span \"between\" needs an odd number, positions −T … T");
  }
}

void check_table(const char* op, const char* name, const at::Tensor& table,
                 const VectorArguments& a) {
  check_defined(op, name, table);
  const int64_t lead = a.has_both() ? 1 : 0;
  const int64_t heads = size_of(a.q, 1), head_size = size_of(a.q, 3);
  const bool shared = table.dim() == lead + 2;
  const bool own = table.dim() == lead + 3 && size_of(table, lead) == heads;
  const bool parts = lead == 0 || (table.dim() > 0 && size_of(table, 0) == 2);
  const bool fits = (shared || own) && parts && size_of(table, -1) == head_size;
  const std::string two = lead ? "2, " : "";
  TORCH_CHECK_VALUE(fits, op, ": ", shown(name, table), " does not fit ", shown("q", a.q),
                    " in mode \"", a.mode, "\"; [", two, "M, ", head_size, "] or [", two, heads,
                    ", M, ", head_size, "] was expected");
  check_table_rows(op, a.span, size_of(table, -2));
  check_parameter_type(op, name, table, a.q);
}

/// The kernels and formulas of 16 and 32 bits take it as float32.
void check_scale(const char* op, double scale, const at::Tensor& q) {
  TORCH_CHECK_VALUE(std::isfinite(scale), op, ": scale is ", scale,
                    "; a finite number was expected");
  constexpr double kLargest = std::numeric_limits<float>::max();
  TORCH_CHECK_VALUE(std::abs(scale) <= kLargest || compute_type(q) == at::kDouble, op,
                    ": scale is ", scale, ", which float32 cannot hold; a number from ", -kLargest,
                    " to ", kLargest, " was expected");
}

/// Bytes that forward keeps for backward. Under tracing, tensors of a GPU call themselves "meta".
void check_kept(const char* op, const Sape2Arguments& a) {
  const bool fits = a.kept == 0 || (a.kept > 0 && !a.vectors.q.device().is_cpu());
  TORCH_CHECK_VALUE(fits, op, ": kept is ", a.kept, " on ", a.vectors.q.device(),
                    "; 0, or on a GPU the number of bytes per head, was expected");
}

void check_vector(const char* op, const char* name, const at::Tensor& u, const at::Tensor& q,
                  const Grid& grid, int64_t length) {
  check_defined(op, name, u);
  const bool fits = (u.dim() == 4 || (u.dim() == 5 && size_of(u, 0) == 2)) &&
                    u.sym_size(-4) == q.sym_size(0) && size_of(u, -3) == size_of(q, 1) &&
                    size_of(u, -2) == grid.patches() && size_of(u, -1) == length;
  TORCH_CHECK_VALUE(fits, op, ": ", shown(name, u), " does not fit ", shown("q", q), "; [",
                    size_of(q, 0), ", ", size_of(q, 1), ", ", grid.patches(), ", ", length,
                    "], with or without a leading axis of 2, was expected");
  check_parameter_type(op, name, u, q);
}

}  // namespace

void check_tensor(const char* op, const char* name, const at::Tensor& tensor,
                  const at::Tensor& like, at::ScalarType type,
                  std::initializer_list<c10::SymInt> shape) {
  check_defined(op, name, tensor);
  const c10::SymIntArrayRef expected(shape.begin(), shape.size());
  TORCH_CHECK_VALUE(tensor.sym_sizes() == expected, op, ": ", shown(name, tensor),
                    " does not fit the other arguments; ", expected, " was expected");
  TORCH_CHECK_TYPE(tensor.scalar_type() == type, op, ": ", name, " is ", tensor.scalar_type(), "; ",
                   type, " was expected");
  TORCH_CHECK_VALUE(tensor.device() == like.device(), op, ": ", name, " is on ", tensor.device(),
                    " but the other arguments are on ", like.device(), "; move all to one device");
}

at::ScalarType compute_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

void check_packed(const char* op, const at::Tensor& qkv, int64_t heads) {
  check_defined(op, "qkv", qkv);
  TORCH_CHECK_VALUE(heads >= 1, op, ": heads is ", heads, "; at least 1 was expected");
  TORCH_CHECK_VALUE(qkv.dim() == 3 && size_of(qkv, 2) > 0 && size_of(qkv, 2) % 3 == 0 &&
                        size_of(qkv, 2) / 3 % heads == 0,
                    op, ": ", shown("qkv", qkv), " does not fit; [images, tokens, 3·", heads,
                    "·head size] was expected");
}

Form parse_form(const char* op, const std::string& form) {
  check_choice(op, "form", form, {"distance", "direct", "paths"});
  return form == "distance" ? Form::distance : form == "direct" ? Form::direct : Form::paths;
}

Form parse_any_form(const char* op, const std::string& form) {
  check_choice(op, "form", form, {"none", "distance", "direct", "paths"});
  return form == "none" ? Form::none : parse_form(op, form);
}

void check(const char* op, const VectorArguments& a) {
  check_q(op, a.q);
  check_like_q(op, "k", a.k, a.q);
  check_grid(op, "q", a.q, a.grid);
  check_choice(op, "mode", a.mode, {"q", "k", "qk"});
  check_choice(op, "span", a.span, {"suffix", "between"});
  check_table(op, "ex", a.ex, a);
  check_table(op, "ey", a.ey, a);
  TORCH_CHECK_VALUE(a.ex.sym_sizes() == a.ey.sym_sizes(), op, ": ", shown("ex", a.ex), " and ",
                    shown("ey", a.ey), " differ; tables of one shape were expected");
  TORCH_CHECK_TYPE(a.ex.scalar_type() == a.ey.scalar_type(), op, ": ex is ", a.ex.scalar_type(),
                   " but ey is ", a.ey.scalar_type(), "; tables of one type were expected");
  check_per_head(op, "gate_scale", a.gate_scale, a.q);
  check_per_head(op, "gate_offset", a.gate_offset, a.q);
}

void check(const char* op, const BiasedArguments& a) {
  check_q(op, a.q);
  check_like_q(op, "k", a.k, a.q);
  check_like_q(op, "v", a.v, a.q);
  check_scale(op, a.scale, a.q);
  if (a.form == Form::none) {
    TORCH_CHECK_VALUE(!a.ux.defined() && !a.uy.defined() && !a.gain.defined(), op,
                      ": ux, uy or gain is given, but form is \"none\"; leave them out, or choose "
                      "\"distance\", \"direct\" or \"paths\"");
    return;
  }
  check_grid(op, "q", a.q, a.grid);
  const bool direct = a.form == Form::direct;
  check_vector(op, direct ? "zx" : "ux", a.ux, a.q, a.grid, a.grid.cols);
  check_vector(op, direct ? "zy" : "uy", a.uy, a.q, a.grid, a.grid.rows);
  TORCH_CHECK_VALUE(a.ux.dim() == a.uy.dim(), op, ": ", shown("the x vectors", a.ux), " and ",
                    shown("the y vectors", a.uy),
                    " differ in the leading axis of 2; give it to both or to none");
  TORCH_CHECK_TYPE(a.ux.scalar_type() == a.uy.scalar_type(), op, ": the x vectors are ",
                   a.ux.scalar_type(), " but the y vectors are ", a.uy.scalar_type(),
                   "; vectors of one type were expected");
  check_per_head(op, "gain", a.gain, a.q);
}

void check(const char* op, const Sape2Arguments& a) {
  check(op, a.vectors);
  check_like_q(op, "v", a.v, a.vectors.q);
  check_scale(op, a.scale, a.vectors.q);
  check_per_head(op, "gain", a.gain, a.vectors.q);
  check_kept(op, a);
}

void check(const char* op, const PackedArguments& a) {
  check_packed(op, a.qkv, a.heads);
  check(op, with_thirds(a));
  TORCH_CHECK_VALUE(has_kernel(a.split.form), op,
                    ": form is \"paths\"; \"distance\" or \"direct\" was expected");
}

void check(const char* op, const CopeArguments& a) {
  check_q(op, a.q);
  check_like_q(op, "k", a.k, a.q);
  check_like_q(op, "v", a.v, a.q);
  check_scale(op, a.scale, a.q);
  check_defined(op, "e", a.e);
  TORCH_CHECK_VALUE(a.e.dim() == 2 && size_of(a.e, 1) == size_of(a.q, 3) && size_of(a.e, 0) >= 1,
                    op, ": ", shown("e", a.e), " does not fit ", shown("q", a.q), "; [M, ",
                    size_of(a.q, 3), "] with M of at least 1 was expected");
  check_parameter_type(op, "e", a.e, a.q);
}

void check(const char* op, const BiasArguments& a) {
  const Grid& grid = a.grid;
  check_at_least(op, grid);
  check_defined(op, "ux", a.ux);
  check_defined(op, "uy", a.uy);
  check_type(op, "ux", a.ux);
  // N × N numbers are stored: more tokens than this no memory holds.
  constexpr int64_t kMostTokens = int64_t{1} << 31;
  const auto fits = [&](const at::Tensor& u, int64_t length) {
    if (u.dim() != 4 && !(u.dim() == 5 && size_of(u, 0) == 2)) return false;
    const int64_t patches = size_of(u, -2);
    return size_of(u, -1) == length && patches % grid.rows == 0 &&
           patches / grid.rows == grid.cols && patches <= kMostTokens - grid.prefix;
  };
  TORCH_CHECK_VALUE(grid.prefix <= kMostTokens && fits(a.ux, grid.cols) && fits(a.uy, grid.rows) &&
                        a.ux.dim() == a.uy.dim() && a.ux.sym_size(-4) == a.uy.sym_size(-4) &&
                        a.ux.sym_size(-3) == a.uy.sym_size(-3),
                    op, ": ", shown("ux", a.ux), " and ", shown("uy", a.uy), " do not fit rows ",
                    grid.rows, ", cols ", grid.cols, " and prefix ", grid.prefix,
                    "; [images, heads, rows·cols, cols] and [images, heads, "
                    "rows·cols, rows], with or without a leading axis of 2, were expected");
  TORCH_CHECK_TYPE(a.ux.scalar_type() == a.uy.scalar_type(), op, ": ux is ", a.ux.scalar_type(),
                   " but uy is ", a.uy.scalar_type(), "; vectors of one type were expected");
  TORCH_CHECK_VALUE(a.ux.device() == a.uy.device(), op, ": ux is on ", a.ux.device(),
                    " but uy is on ", a.uy.device(), "; move both to one device");
}

void check_rotary(const char* op, const at::Tensor& x, const Grid& grid, int64_t divisor) {
  check_defined(op, "x", x);
  TORCH_CHECK_VALUE(x.dim() == 4, op, ": ", shown("x", x), " has ", x.dim(),
                    " axes; [images, heads, tokens, head size] was expected");
  check_type(op, "x", x);
  TORCH_CHECK_VALUE(size_of(x, 3) > 0 && size_of(x, 3) % divisor == 0, op, ": ", shown("x", x),
                    " has head size ", size_of(x, 3), "; a multiple of ", divisor, " was expected");
  check_grid(op, "x", x, grid);
}

void check_frequencies(const char* op, const char* name, const at::Tensor& f, const at::Tensor& x) {
  check_defined(op, name, f);
  TORCH_CHECK_VALUE(
      f.dim() == 2 && size_of(f, 0) == size_of(x, 1) && size_of(f, 1) == size_of(x, 3) / 2, op,
      ": ", shown(name, f), " does not fit ", shown("x", x), "; [", size_of(x, 1), ", ",
      size_of(x, 3) / 2, "] was expected");
  check_parameter_type(op, name, f, x);
}

}  // namespace sape2::ops
