#include "io/fuzz_one_input.h"

#include "sape2/base/error.h"
#include "sape2/io/safetensors.h"

#include "io/safetensors_header.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace sape2::io::test {
namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz_one_input: %s\n", what);
  std::abort();
}

void require_consistent(const SafetensorsContent& content, std::span<const std::byte> input) {
  std::size_t total = 0;
  for (const TensorView& tensor : content.tensors) {
    require(tensor.bytes.data() >= input.data() &&
                tensor.bytes.data() + tensor.bytes.size() <= input.data() + input.size(),
            "a tensor lies outside the file");
    require(tensor.bytes.size() == tensor_bytes(tensor.shape, tensor.dtype, tensor.name),
            "a tensor's size is not that of its shape");
    total += tensor.bytes.size();
  }
  require(total <= input.size(), "tensors are larger than the file");
}

bool same_tensor(const TensorView& left, const TensorView& right) {
  return left.name == right.name && left.dtype == right.dtype && left.shape == right.shape &&
         std::ranges::equal(left.bytes, right.bytes);
}

void require_round_trip(const SafetensorsContent& content) {
  const Layout layout = make_layout(content.tensors, content.metadata);
  std::string written = layout.header;
  for (const TensorView* tensor : layout.order) {
    written.append(reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size());
  }
  const SafetensorsContent again =
      parse_safetensors(std::as_bytes(std::span(written)), "written again");
  require(again.metadata == content.metadata, "metadata changed in a round trip");
  require(again.tensors.size() == content.tensors.size(), "tensors were lost in a round trip");
  std::map<std::string_view, const TensorView*> by_name;
  for (const TensorView& tensor : again.tensors) by_name[tensor.name] = &tensor;
  for (const TensorView& tensor : content.tensors) {
    require(by_name.contains(tensor.name) && same_tensor(*by_name[tensor.name], tensor),
            "a tensor changed in a round trip");
  }
}

}  // namespace

bool fuzz_one_input(std::span<const std::byte> input) {
  SafetensorsContent content;
  try {
    content = parse_safetensors(input, "input");
  } catch (const Error& error) {
    const std::string_view text = error.what();
    require(!text.empty() && text.find('\n') == std::string_view::npos,
            "a refusal is not one sentence");
    return false;
  }
  require_consistent(content, input);
  require_round_trip(content);
  return true;
}

}  // namespace sape2::io::test
