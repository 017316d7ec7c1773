#include "sape2/io/dtype.h"

#include <algorithm>
#include <array>

namespace sape2::io {
namespace {

struct Entry {
  std::string_view name;
  std::size_t size;
};

// In the order of Dtype.
constexpr std::array kEntries = {
    Entry{"BOOL", 1}, Entry{"U8", 1},  Entry{"I8", 1},  Entry{"F8_E5M2", 1}, Entry{"F8_E4M3", 1},
    Entry{"I16", 2},  Entry{"U16", 2}, Entry{"F16", 2}, Entry{"BF16", 2},    Entry{"I32", 4},
    Entry{"U32", 4},  Entry{"F32", 4}, Entry{"F64", 8}, Entry{"I64", 8},     Entry{"U64", 8},
};

constexpr auto kDtypes = [] {
  std::array<Dtype, kEntries.size()> dtypes{};
  for (std::size_t i = 0; i < dtypes.size(); ++i) dtypes[i] = static_cast<Dtype>(i);
  return dtypes;
}();
static_assert(kDtypes.back() == Dtype::u64);

const Entry& entry(Dtype dtype) {
  return kEntries[static_cast<std::size_t>(dtype)];
}

}  // namespace

std::span<const Dtype> all_dtypes() {
  return kDtypes;
}

std::string_view dtype_name(Dtype dtype) {
  return entry(dtype).name;
}

std::size_t dtype_size(Dtype dtype) {
  return entry(dtype).size;
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  auto found = std::ranges::find(kEntries, name, &Entry::name);
  if (found == kEntries.end()) return std::nullopt;
  return static_cast<Dtype>(found - kEntries.begin());
}

}  // namespace sape2::io
