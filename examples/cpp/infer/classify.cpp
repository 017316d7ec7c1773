// Says what a trained model sees in an image file, without LibTorch.
//
//   classify MODEL.safetensors IMAGE [TOP]
//
// The model file holds everything else: the architecture, the position encoding, the class names
// and how images are normalised.
#include <sape2/base/error.h>
#include <sape2/data/image.h>
#include <sape2/infer/prediction.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: classify MODEL.safetensors IMAGE [TOP]\n");
    return 2;
  }
  const long top = argc == 4 ? std::strtol(argv[3], nullptr, 10) : 3;
  if (top < 1) {
    std::fprintf(stderr, "classify: TOP is '%s'; it must be a whole number from 1\n", argv[3]);
    return 2;
  }
  try {
    sape2::infer::Session session(sape2::infer::Model::open(argv[1]));
    const sape2::data::Image image = sape2::data::read_image(argv[2]);  // PNG or JPEG
    for (const auto& prediction : sape2::infer::predict(session, image, top)) {
      std::printf("%6.2f %%  %s\n", 100 * prediction.probability, prediction.name.c_str());
    }
  } catch (const sape2::Error& error) {  // one sentence: what, where, what to do
    std::fprintf(stderr, "classify: %s\n", error.what());
    return 1;
  }
  return 0;
}
