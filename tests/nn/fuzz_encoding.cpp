// Any text as an encoding or a list of them: refused in a sentence, or equal after a round trip.
#include "sape2/base/error.h"
#include "sape2/nn/encoding_spec.h"

#include "support/fuzz_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using sape2::nn::EncodingSpec;
  try {
    for (const EncodingSpec& spec :
         sape2::nn::parse_encoding_list({reinterpret_cast<const char*>(data), size})) {
      sape2::testing::require(EncodingSpec::parse(spec.to_string()) == spec,
                              "an encoding changed in a round trip");
    }
  } catch (const sape2::Error& error) {
    sape2::testing::require_sentence(error.what());
  }
  return 0;
}
