// Every function of both headers, called from C: with null pointers first, which must be refused,
// then in earnest.
#include <sape2_images.h>
#include <sape2_infer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "capi_c99: %s; last errors: \"%s\", \"%s\"\n", what, sape2_infer_last_error(),
          sape2_images_last_error());
  exit(1);
}

static void refuse_null(void) {
  require(sape2_infer_model_open(NULL, NULL, NULL) == SAPE2_INFER_BAD_ARGUMENT, "open");
  require(strcmp(sape2_infer_last_error(), "the argument path is null") == 0,
          "the sentence of open");
  require(sape2_infer_model_from_memory(NULL, 0, NULL, NULL, NULL) == SAPE2_INFER_BAD_ARGUMENT,
          "from_memory");
  require(sape2_infer_describe(NULL, NULL) == SAPE2_INFER_BAD_ARGUMENT, "describe");
  require(sape2_infer_class_name(NULL, 0, NULL) == SAPE2_INFER_BAD_ARGUMENT, "class_name");
  require(sape2_infer_session_new(NULL, NULL, NULL) == SAPE2_INFER_BAD_ARGUMENT, "session_new");
  require(sape2_infer_run(NULL, NULL, NULL, 0) == SAPE2_INFER_BAD_ARGUMENT, "run");
  require(sape2_infer_run_images(NULL, NULL, 0, NULL, 0) == SAPE2_INFER_BAD_ARGUMENT, "run_images");
  require(sape2_infer_prepare_image(NULL, NULL, 0, 0, NULL, 0) == SAPE2_INFER_BAD_ARGUMENT,
          "prepare_image");
  require(sape2_infer_rank(NULL, NULL, 0, NULL) == SAPE2_INFER_BAD_ARGUMENT, "rank");
  require(sape2_infer_inspection_new(NULL, NULL, NULL) == SAPE2_INFER_BAD_ARGUMENT,
          "inspection_new");
  require(sape2_infer_inspection_rows(NULL, 0, NULL, 0, NULL) == SAPE2_INFER_BAD_ARGUMENT,
          "inspection_rows");
  require(sape2_images_read(NULL, NULL) == SAPE2_INFER_BAD_ARGUMENT, "images_read");
  require(sape2_images_decode(NULL, 0, NULL, NULL) == SAPE2_INFER_BAD_ARGUMENT, "images_decode");
  require(strcmp(sape2_images_last_error(), "the argument file is null") == 0,
          "the sentence of decode");
  require(sape2_infer_model_free(NULL) == SAPE2_INFER_OK &&
              sape2_infer_session_free(NULL) == SAPE2_INFER_OK &&
              sape2_infer_inspection_free(NULL) == SAPE2_INFER_OK,
          "freeing null");
  sape2_images_free(NULL);
}

int main(int argc, char** argv) {
  sape2_infer_model* model = NULL;
  sape2_infer_session* session = NULL;
  sape2_infer_inspection* inspection = NULL;
  sape2_infer_model_options model_options = SAPE2_INFER_MODEL_OPTIONS_INIT;
  sape2_infer_session_options session_options = SAPE2_INFER_SESSION_OPTIONS_INIT;
  sape2_infer_description about = SAPE2_INFER_DESCRIPTION_INIT;
  sape2_infer_image image = SAPE2_INFER_IMAGE_INIT;
  sape2_infer_batch batch = SAPE2_INFER_BATCH_INIT;
  sape2_infer_rows rows = SAPE2_INFER_ROWS_INIT;
  sape2_infer_guess best;
  const char* name = NULL;
  float logits[10];
  static float pixels[3 * 32 * 32];
  const int64_t patches[] = {0, 63};
  if (argc != 3) return 2;
  refuse_null();
  require(sape2_infer_abi_version() == SAPE2_INFER_ABI_VERSION, "header and library differ");
  require(strlen(sape2_infer_version()) > 0, "there is no version");
  require(sape2_infer_model_open(argv[1], &model_options, &model) == SAPE2_INFER_OK, "open");
  require(sape2_infer_describe(model, &about) == SAPE2_INFER_OK && about.classes == 10, "describe");
  require(sape2_infer_class_name(model, 8, &name) == SAPE2_INFER_OK && strcmp(name, "ship") == 0,
          "class_name");
  session_options.threads = 1;
  require(sape2_infer_session_new(model, &session_options, &session) == SAPE2_INFER_OK,
          "session_new");
  require(sape2_images_read(argv[2], &image) == SAPE2_INFER_OK, "images_read");
  require(sape2_infer_run_images(session, &image, 1, logits, 10) == SAPE2_INFER_OK, "run_images");
  require(sape2_infer_rank(model, logits, 1, &best) == SAPE2_INFER_OK && best.index == 8, "rank");
  require(sape2_infer_prepare_image(model, &image, 0, 0, pixels, 3 * 32 * 32) == SAPE2_INFER_OK,
          "prepare_image");
  batch.pixels = pixels;
  batch.count = 1;
  batch.height = batch.width = 32;
  require(sape2_infer_run(session, &batch, logits, 10) == SAPE2_INFER_OK, "run");
  require(sape2_infer_inspection_new(session, &batch, &inspection) == SAPE2_INFER_OK,
          "inspection_new");
  require(sape2_infer_inspection_rows(inspection, 0, patches, 2, &rows) == SAPE2_INFER_OK,
          "inspection_rows");
  require(rows.rows == 8 && rows.attention != NULL && rows.x.gates != NULL, "rows");
  sape2_images_free(&image);
  require(image.pixels == NULL, "images_free");
  require(sape2_infer_inspection_free(inspection) == SAPE2_INFER_OK, "inspection_free");
  require(sape2_infer_session_free(session) == SAPE2_INFER_OK, "session_free");
  require(sape2_infer_model_free(model) == SAPE2_INFER_OK, "model_free");
  puts("every function answers");
  return 0;
}
