#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "nn/definitions/named.h"
#include "nn/encodings/makers.h"

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

const EncodingMaker& encoding_maker(std::string_view name) {
#define SAPE2_PART(file) makers_of_##file,
  static const auto all = joined<EncodingMaker>({SAPE2_ENCODING_FILES(SAPE2_PART)});
#undef SAPE2_PART
  if (const EncodingMaker* found = find_named(all, name)) return *found;
  throw Error("encoding " + in_quotes(name) + " is defined but not made");
}

}  // namespace sape2::nn
