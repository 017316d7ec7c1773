// Encodings as operators: the same code that the program's ViT runs, with parameters that Python
// keeps. Each is made of operators that autograd, autocast and torch.compile know.
#include "sape2/explain/patch_choice.h"

#include "ops/dispatcher/transforms.h"
#include "ops/sizes.h"
#include "python/encoding_info.h"
#include "python/said.h"

#include <ATen/ATen.h>
#include <torch/library.h>
#include <torch/nn/module.h>

#include <map>
#include <mutex>

namespace sape2::python {
namespace {

using at::Tensor;
using at::TensorList;

nn::Initialisation shapes_only() {
  return {.kind = nn::Initialisation::Kind::shapes_only, .seed = 0};
}

/// The encoding without parameters, for its layers; kept, since every call of every layer asks for
/// it and parsing costs more than the rest.
std::shared_ptr<const nn::Encoding> outline(const std::string& encoding, at::IntArrayRef numbers) {
  using Key = std::pair<std::string, std::vector<int64_t>>;
  static std::mutex mutex;
  static std::map<Key, std::shared_ptr<const nn::Encoding>> made;
  Key key{encoding, numbers.vec()};
  const std::lock_guard lock(mutex);
  auto& found = made[key];
  if (!found) {
    torch::nn::Module nowhere;
    std::set<std::string> decayed;
    nn::ParameterScope scope(nowhere, shapes_only(), decayed);
    try {
      found = nn::make_encoding(nn::EncodingSpec::parse(encoding), shape_of(numbers), scope);
    } catch (...) {
      made.erase(key);
      throw;
    }
  }
  return found;
}

std::unique_ptr<nn::LayerEncoding> layer_of(const std::string& encoding, at::IntArrayRef shape,
                                            TensorList parameters) {
  nn::GivenParameters given(parameters.vec());
  nn::ParameterScope scope(given);
  return outline(encoding, shape)->make_layer(scope);
}

/// The grid of a call; bounded here, because the products of its numbers are used before an
/// operator checks them.
ops::Grid grid_of(int64_t rows, int64_t cols, const nn::EncodingShape& trained) {
  constexpr int64_t kMost = int64_t{1} << 20;
  const auto bounded = [](int64_t number) { return number >= -kMost && number <= kMost; };
  TORCH_CHECK_VALUE(bounded(rows) && bounded(cols), "the grid is ", rows, "×", cols,
                    "; rows and columns from 1 to ", kMost, " were expected");
  return {rows, cols, trained.prefix};
}

nn::ForwardPass pass_over(int64_t rows, int64_t cols, const nn::EncodingShape& trained) {
  return {.grid = grid_of(rows, cols, trained)};
}

void check_token_count(int64_t tokens, const ops::Grid& grid) {
  TORCH_CHECK_VALUE(tokens == grid.tokens(), "there are ", tokens, " tokens, but ", grid.prefix,
                    " before the patches and a grid of ", grid.rows, "×", grid.cols, " make ",
                    grid.tokens(),
                    "; give the grid of this call as grid=(rows, cols), or the right prefix when "
                    "the module is made (images of other sizes in a timm model: "
                    "sape2.follow_grid)");
}

/// Whether q is of this layer and of the grid; what else can be wrong the operators say.
void check_tokens(const Tensor& q, const nn::EncodingShape& layer, const ops::Grid& grid) {
  TORCH_CHECK_VALUE(
      q.dim() == 4 && ops::size_of(q, 1) == layer.heads && ops::size_of(q, 3) == layer.head_size(),
      "q is ", q.sym_sizes(), ", expected [images, ", layer.heads, " heads, tokens, ",
      layer.head_size(), " channels]");
  check_token_count(ops::size_of(q, 2), grid);
}

Tensor encoded_attention(const Tensor& q, const Tensor& k, const Tensor& v, std::string encoding,
                         at::IntArrayRef shape, TensorList parameters, int64_t rows, int64_t cols) {
  return said([&] {
    const nn::EncodingShape trained = shape_of(shape);
    const ops::Grid grid = grid_of(rows, cols, trained);
    check_tokens(q, trained, grid);
    return layer_of(encoding, shape, parameters)->attend(q, k, v, grid);
  });
}

/// The same of a projection's output [B, N, 3·D].
Tensor encoded_packed_attention(const Tensor& qkv, std::string encoding, at::IntArrayRef shape,
                                TensorList parameters, int64_t rows, int64_t cols) {
  return said([&] {
    const nn::EncodingShape trained = shape_of(shape);
    const ops::Grid grid = grid_of(rows, cols, trained);
    TORCH_CHECK_VALUE(qkv.dim() == 3 && ops::size_of(qkv, 2) == 3 * trained.width, "qkv is ",
                      qkv.sym_sizes(), ", expected [images, tokens, 3·", trained.width, "]");
    check_token_count(ops::size_of(qkv, 1), grid);
    return layer_of(encoding, shape, parameters)->attend_packed(qkv, trained.heads, grid);
  });
}

/// What that attention is made of, as chosen patches see it; parts that the encoding lacks are
/// empty.
std::tuple<std::vector<Tensor>, bool> encoded_rows(const Tensor& q, const Tensor& k,
                                                   std::string encoding, at::IntArrayRef shape,
                                                   TensorList parameters, int64_t rows,
                                                   int64_t cols, at::IntArrayRef patches) {
  return said([&] {
    const ops::AttentionRows seen =
        layer_of(encoding, shape, parameters)
            ->inspect(q, k, grid_of(rows, cols, shape_of(shape)), patches.vec());
    std::vector<Tensor> parts{seen.attention, seen.bias,     seen.x.bias,      seen.y.bias,
                              seen.x.gates,   seen.y.gates,  seen.x.positions, seen.y.positions,
                              seen.gates,     seen.positions};
    for (Tensor& part : parts)
      if (!part.defined()) part = at::empty({0});
    return std::tuple(parts, seen.is_distance);
  });
}

/// Row and column of a patch of the subject and of one of the background, by patches [rows·cols,
/// D].
std::vector<int64_t> chosen_patches(const Tensor& patches, int64_t rows, int64_t cols) {
  constexpr int64_t kMost = int64_t{1} << 20;
  TORCH_CHECK_VALUE(rows > 0 && cols > 0 && rows <= kMost && cols <= kMost && patches.dim() == 2 &&
                        patches.size(0) == rows * cols && patches.size(1) > 0,
                    "patches are ", patches.sizes(), ", expected [", rows, "·", cols,
                    ", numbers of each], with at least one of everything");
  const Tensor plain = patches.to(at::kCPU, at::kFloat).contiguous();
  const std::span values(plain.data_ptr<float>(), static_cast<size_t>(plain.numel()));
  const auto [subject, background] = explain::choose_patches(values, {rows, cols, 0});
  return {subject.y, subject.x, background.y, background.x};
}

/// The tokens with what the encoding adds at the input, and what it hands to the first layer (empty
/// where that is nothing).
std::tuple<Tensor, Tensor> encoded_input(const Tensor& tokens, std::string encoding,
                                         at::IntArrayRef shape, TensorList parameters, int64_t rows,
                                         int64_t cols) {
  return said([&] {
    const nn::EncodingShape trained = shape_of(shape);
    nn::ForwardPass pass = pass_over(rows, cols, trained);
    TORCH_CHECK_VALUE(tokens.dim() == 3 && ops::size_of(tokens, 2) == trained.width &&
                          ops::size_of(tokens, 1) == pass.grid.tokens(),
                      "tokens are ", tokens.sym_sizes(), ", expected [images, ", trained.prefix,
                      " + ", rows, "·", cols, ", ", trained.width, "]");
    nn::GivenParameters given(parameters.vec());
    nn::ParameterScope scope(given);
    const auto made = nn::make_encoding(nn::EncodingSpec::parse(encoding), trained, scope);
    // An operator never returns one of its arguments.
    Tensor added = made->embed(tokens, pass);
    if (added.is_same(tokens)) added = tokens.clone();
    return std::tuple(added, pass.carried.defined() ? pass.carried.clone() : at::empty({0}));
  });
}

/// What a layer's q, k and v are projected from, and what the layer hands to the next.
std::tuple<Tensor, Tensor> encoded_layer_input(const Tensor& tokens, const Tensor& carried,
                                               std::string encoding, at::IntArrayRef shape,
                                               TensorList parameters, int64_t rows, int64_t cols) {
  return said([&] {
    nn::ForwardPass pass = pass_over(rows, cols, shape_of(shape));
    pass.carried = carried;
    const Tensor input = layer_of(encoding, shape, parameters)->attention_input(tokens, pass);
    return std::tuple(input, pass.carried);
  });
}

/// First values of the parameters of the model as a whole, or of the layer at `path`.
std::vector<Tensor> encoding_parameters(std::string encoding, at::IntArrayRef shape, bool of_layer,
                                        int64_t seed, std::string path) {
  return said([&] {
    const nn::Initialisation random{.kind = nn::Initialisation::Kind::random,
                                    .seed = static_cast<uint64_t>(seed)};
    std::set<std::string> decayed;
    torch::nn::Module root;
    std::vector<Tensor> values;
    if (of_layer) {
      nn::ParameterScope scope(root, random, decayed);
      // A name with dots is a place in the tree, as in the names of parameters.
      for (size_t start = 0; start < path.size();) {
        const size_t dot = std::min(path.find('.', start), path.size());
        scope = scope.child(path.substr(start, dot - start));
        start = dot + 1;
      }
      outline(encoding, shape)->make_layer(scope);
    } else {
      nn::ParameterScope scope(root, random, decayed);
      nn::make_encoding(nn::EncodingSpec::parse(encoding), shape_of(shape), scope);
    }
    for (const Tensor& parameter : root.parameters()) values.push_back(parameter.detach());
    return values;
  });
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(sape2, m) {
  // shape: width, heads, rows, cols, prefix of the model; rows, cols: the grid of this call.
  m.def("_encodings() -> str", [] { return encodings_json(); });
  m.def("_encoding(str encoding, int[] shape) -> str",
        [](std::string encoding, at::IntArrayRef shape) {
          return said([&] { return encoding_json(encoding, shape); });
        });
  m.def(
      "_encoding_parameters(str encoding, int[] shape, bool of_layer, int seed, str path) -> "
      "Tensor[]",
      &encoding_parameters);
  m.def(
      "_encoded_attention(Tensor q, Tensor k, Tensor v, str encoding, int[] shape, Tensor[] "
      "parameters, int rows, int cols) -> Tensor",
      &encoded_attention);
  m.def(
      "_encoded_packed_attention(Tensor qkv, str encoding, int[] shape, Tensor[] parameters, int "
      "rows, int cols) -> Tensor",
      &encoded_packed_attention);
  m.def(
      "_encoded_rows(Tensor q, Tensor k, str encoding, int[] shape, Tensor[] parameters, int rows, "
      "int cols, int[] patches) -> (Tensor[] rows, bool is_distance)",
      &encoded_rows);
  m.def("_chosen_patches(Tensor patches, int rows, int cols) -> int[]", &chosen_patches);
  m.def(
      "_encoded_input(Tensor tokens, str encoding, int[] shape, Tensor[] parameters, int rows, "
      "int cols) -> (Tensor tokens, Tensor carried)",
      &encoded_input);
  m.def(
      "_encoded_layer_input(Tensor tokens, Tensor carried, str encoding, int[] shape, Tensor[] "
      "parameters, int rows, int cols) -> (Tensor input, Tensor carried)",
      &encoded_layer_input);
}

TORCH_LIBRARY_IMPL(sape2, FuncTorchBatched, m) {
  for (const char* name : {"_encoded_attention", "_encoded_packed_attention", "_encoded_input",
                           "_encoded_layer_input"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&ops::refuse_vmap>());
}

}  // namespace sape2::python
