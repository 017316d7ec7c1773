// Any bytes as a model file for the runtime: it refuses them with a sentence, or computes with
// them.
#include "sape2/base/error.h"
#include "sape2/infer/session.h"

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

namespace {

constexpr std::int64_t kMostPixels = 64 * 64;

void run_once(const sape2::infer::Model& model) {
  const auto& vit = model.config().vit;
  const auto [height, width] = vit.image_size;
  if (height > kMostPixels || width > kMostPixels || height * width > kMostPixels) return;
  sape2::infer::Session session(model, {.threads = 1});
  const std::vector<float> pixels(static_cast<std::size_t>(vit.channels * height * width), 0.5F);
  session.run({pixels.data(), 1, height, width});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    run_once(sape2::infer::Model::from_memory(std::as_bytes(std::span(data, size)), "input"));
  } catch (const sape2::Error& error) {
    const std::string_view text = error.what();
    if (text.empty() || text.find('\n') != std::string_view::npos) {
      std::fprintf(stderr, "fuzz_model: a refusal is not one sentence\n");
      std::abort();
    }
  }
  return 0;
}
