#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "nn/encodings/makers.h"

#include <algorithm>

namespace sape2::nn {

// One line an encoding file: X(rope) stands for makers_of_rope(), which src/nn/encodings/rope.cpp
// holds.
#define SAPE2_ENCODING_FILES(X) \
  X(none)                       \
  X(ape)                        \
  X(sinusoidal)                 \
  X(rpe)                        \
  X(rpe_contextual)             \
  X(rope)                       \
  X(rope2d_mixed)               \
  X(cope)                       \
  X(lape)                       \
  X(sape2)

#define SAPE2_DECLARE(file) std::vector<EncodingMaker> makers_of_##file();
SAPE2_ENCODING_FILES(SAPE2_DECLARE)
#undef SAPE2_DECLARE

namespace {

std::vector<EncodingMaker> collect_makers() {
  std::vector<EncodingMaker> all;
#define SAPE2_COLLECT(file) std::ranges::move(makers_of_##file(), std::back_inserter(all));
  SAPE2_ENCODING_FILES(SAPE2_COLLECT)
#undef SAPE2_COLLECT
  return all;
}

}  // namespace

const EncodingMaker& encoding_maker(std::string_view name) {
  static const std::vector<EncodingMaker> makers = collect_makers();
  const auto found = std::ranges::find(makers, name, &EncodingMaker::name);
  if (found == makers.end())
    throw Error("encoding " + in_quotes(name) + " is defined but not made");
  return *found;
}

}  // namespace sape2::nn
