#include "io/fuzz_one_input.h"

#include <cstddef>
#include <cstdint>
#include <span>

// Run as `fuzz_safetensors -max_total_time=60 CORPUS_FOLDER`; small real files are a good corpus.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sape2::io::test::fuzz_one_input(std::as_bytes(std::span(data, size)));
  return 0;
}
