#include "io/finite.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "io/shape_text.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace sape2::io {
namespace {

constexpr std::size_t kBlock = 1024;  // elements that are looked at before asking for the outcome

// The first element whose exponent is all ones, or the number of elements. Words rather than
// floats: compiled with -ffast-math or without, a NaN stays one, and the loop becomes vectors.
template <typename Word>
std::size_t first_broken(std::span<const std::byte> bytes, Word exponent) {
  const std::size_t count = bytes.size() / sizeof(Word);
  Word words[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t here = std::min(kBlock, count - begin);
    std::memcpy(words, bytes.data() + begin * sizeof(Word), here * sizeof(Word));
    Word broken = 0;
    for (std::size_t i = 0; i < here; ++i) {
      broken = static_cast<Word>(broken | ((words[i] & exponent) == exponent ? 1 : 0));
    }
    if (broken == 0) continue;
    const Word* found =
        std::find_if(words, words + here, [&](Word word) { return (word & exponent) == exponent; });
    return begin + static_cast<std::size_t>(found - words);
  }
  return count;
}

std::size_t first_broken(const TensorView& tensor) {
  if (tensor.dtype == Dtype::f32) return first_broken<std::uint32_t>(tensor.bytes, 0x7F800000);
  if (tensor.dtype == Dtype::bf16) return first_broken<std::uint16_t>(tensor.bytes, 0x7F80);
  return tensor.bytes.size() / dtype_size(tensor.dtype);
}

// The index of an element by its place in row-major order.
std::vector<std::int64_t> index_of(std::size_t place, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> index(shape.size());
  auto left = static_cast<std::int64_t>(place);
  for (std::size_t i = shape.size(); i-- > 0;) {
    index[i] = left % shape[i];
    left /= shape[i];
  }
  return index;
}

}  // namespace

void check_finite(const SafetensorsFile& file) {
  for (const TensorView& tensor : file.tensors()) {
    const std::size_t place = first_broken(tensor);
    if (place == tensor.bytes.size() / dtype_size(tensor.dtype)) continue;
    throw Error(in_quotes(file.path()) + ": tensor " + in_quotes(tensor.name) +
                " holds a NaN or an infinity at " + shape_text(index_of(place, tensor.shape)) +
                ", so the model cannot compute; use another file");
  }
}

}  // namespace sape2::io
