// Says what a trained model sees in an image file, from C and without LibTorch.
//
//   classify MODEL.safetensors IMAGE
#include <sape2_images.h>
#include <sape2_infer.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOP = 3 };

static int fail(const char* sentence) {  // one sentence: what, where, what to do
  fprintf(stderr, "classify: %s\n", sentence);
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 3) return fputs("usage: classify MODEL.safetensors IMAGE\n", stderr), 2;
  sape2_infer_model* model = NULL;
  sape2_infer_session* session = NULL;
  sape2_infer_description about = SAPE2_INFER_DESCRIPTION_INIT;
  sape2_infer_image image = SAPE2_INFER_IMAGE_INIT;
  if (sape2_infer_model_open(argv[1], NULL, &model) || sape2_infer_describe(model, &about) ||
      sape2_infer_session_new(model, NULL, &session))
    return fail(sape2_infer_last_error());
  if (sape2_images_read(argv[2], &image)) return fail(sape2_images_last_error());  // PNG or JPEG

  float* logits = malloc((size_t)about.classes * sizeof *logits);
  sape2_infer_guess guesses[TOP];
  if (!logits || sape2_infer_run_images(session, &image, 1, logits, (size_t)about.classes) ||
      sape2_infer_rank(model, logits, TOP, guesses))
    return fail(logits ? sape2_infer_last_error() : "there is not enough memory");
  for (int i = 0; i < TOP; ++i)
    printf("%6.2f %%  %s\n", 100 * guesses[i].probability, guesses[i].name);

  free(logits);
  sape2_images_free(&image);
  sape2_infer_session_free(session);
  sape2_infer_model_free(model);
  return 0;
}
