#ifndef SAPE2_INFER_H
#define SAPE2_INFER_H

// Vision transformers of SaPE², from C (C99) and whatever can call C: a model file in, logits out.
// Neither LibTorch nor any other framework is needed.
//
//     sape2_infer_model* model;
//     sape2_infer_session* session;
//     float logits[10];
//     if (sape2_infer_model_open("model.safetensors", NULL, &model) != SAPE2_INFER_OK ||
//         sape2_infer_session_new(model, NULL, &session) != SAPE2_INFER_OK ||
//         sape2_infer_run_images(session, &picture, 1, logits, 10) != SAPE2_INFER_OK) {
//       fprintf(stderr, "%s\n", sape2_infer_last_error());
//     }
//
// Every function that can fail returns a code, and sape2_infer_last_error() then has one sentence
// that says what is wrong and what to do. No exception leaves the library. What a function has not
// been able to do leaves its outputs as they were.
//
// Structs begin with their size, set by the macros SAPE2_INFER_…_INIT: a program that was compiled
// against an older header keeps working with a newer library.

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SAPE2_INFER_API __attribute__((visibility("default")))
#else
#define SAPE2_INFER_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/// The interface that this header describes. It grows only by additions; what changes otherwise
/// gets another number, and the shared library another name.
#define SAPE2_INFER_ABI_VERSION 1

/// The interface of the library that is linked; equal to SAPE2_INFER_ABI_VERSION if they fit.
SAPE2_INFER_API uint32_t sape2_infer_abi_version(void);

/// The version of SaPE², such as "0.1.0".
SAPE2_INFER_API const char* sape2_infer_version(void);

typedef enum sape2_infer_status {
  SAPE2_INFER_OK = 0,
  SAPE2_INFER_BAD_ARGUMENT = 1,  ///< a null pointer, or sizes that do not fit the model
  SAPE2_INFER_BAD_HANDLE = 2,    ///< a handle that was freed, or never was one
  SAPE2_INFER_BUSY = 3,          ///< another thread is using this session or inspection
  SAPE2_INFER_BAD_FILE = 4,      ///< a file that cannot be read, or is not what it should be
  SAPE2_INFER_NOT_FINITE = 5,    ///< the logits are not finite numbers, so they rank nothing
  SAPE2_INFER_NO_MEMORY = 6,
  SAPE2_INFER_INTERNAL = 7  ///< a mistake of the library; please report the sentence
} sape2_infer_status;

/// The sentence of the calling thread's last failure, "" before the first. UTF-8, without control
/// characters, valid until the thread's next failure.
SAPE2_INFER_API const char* sape2_infer_last_error(void);

/// Handles. They are numbers in disguise, never addresses: one that was freed is recognised.
typedef struct sape2_infer_model sape2_infer_model;
typedef struct sape2_infer_session sape2_infer_session;
typedef struct sape2_infer_inspection sape2_infer_inspection;

// ---- Models ----------------------------------------------------------------------------------

/// What matrix products multiply.
typedef enum sape2_infer_arithmetic {
  /// The weights as the file has them, and activations in float32: what `sape2 predict` computes.
  SAPE2_INFER_FLOAT32 = 0,
  /// Both rounded to bfloat16, on CPUs that multiply it; the logits carry that rounding. On other
  /// CPUs the same as SAPE2_INFER_FLOAT32.
  SAPE2_INFER_BFLOAT16 = 1
} sape2_infer_arithmetic;

typedef struct sape2_infer_model_options {
  size_t struct_size;
  int arithmetic;  ///< a sape2_infer_arithmetic
} sape2_infer_model_options;
#define SAPE2_INFER_MODEL_OPTIONS_INIT \
  { sizeof(sape2_infer_model_options), SAPE2_INFER_FLOAT32 }

/// Reads a model file, as `sape2 train` writes it. The file is needed during the call only. Options
/// may be null. A model never changes: any number of sessions on any number of threads may use it.
SAPE2_INFER_API sape2_infer_status sape2_infer_model_open(const char* path,
                                                          const sape2_infer_model_options* options,
                                                          sape2_infer_model** model);

/// The same for a file that is in memory already, which is needed during the call only. Messages
/// call it `name`; null: "the model in memory".
SAPE2_INFER_API sape2_infer_status
sape2_infer_model_from_memory(const void* file, size_t bytes, const char* name,
                              const sape2_infer_model_options* options, sape2_infer_model** model);

/// Null is allowed and does nothing, here and in the other functions that free. Sessions of the
/// model stay usable; its strings do not.
SAPE2_INFER_API sape2_infer_status sape2_infer_model_free(sape2_infer_model* model);

/// What a model is. The strings and arrays are the model's.
typedef struct sape2_infer_description {
  size_t struct_size;
  int64_t classes;
  int64_t channels;
  int64_t image_height;  ///< as trained; others are possible, see sape2_infer_run()
  int64_t image_width;
  int64_t patch_height;
  int64_t patch_width;
  int64_t depth;
  int64_t width;
  int64_t heads;
  int64_t prefix;           ///< tokens before the patches: class token, registers
  const char* encoding;     ///< such as "sape2-rel-k"
  const double* mean;       ///< (channels), of pixels in 0 … 1; null: no normalisation
  const double* deviation;  ///< (channels), or null
  size_t weight_bytes;      ///< memory that the weights take
} sape2_infer_description;
#define SAPE2_INFER_DESCRIPTION_INIT \
  { sizeof(sape2_infer_description), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, 0 }

SAPE2_INFER_API sape2_infer_status sape2_infer_describe(const sape2_infer_model* model,
                                                        sape2_infer_description* description);

/// A class's name; "class 7" if the model has no names. The string is the model's.
SAPE2_INFER_API sape2_infer_status sape2_infer_class_name(const sape2_infer_model* model,
                                                          int64_t index, const char** name);

// ---- Sessions --------------------------------------------------------------------------------

/// Work on [begin, end) of a loop; `work` is what sape2_infer_parallel_for was given.
typedef void (*sape2_infer_body)(void* work, int64_t begin, int64_t end);

/// Calls `body(work, begin, end)` on ranges that cover [0, count) once, on as many threads as it
/// likes, and returns when all are done.
typedef void (*sape2_infer_parallel_for)(void* context, int64_t count, sape2_infer_body body,
                                         void* work);

typedef struct sape2_infer_session_options {
  size_t struct_size;
  int32_t threads;  ///< of the session's own; 0: one for each core, 1: the calling one alone
  /// The caller's threads instead, if not null; `threads` is then not looked at.
  sape2_infer_parallel_for parallel_for;
  void* context;  ///< handed to parallel_for
} sape2_infer_session_options;
#define SAPE2_INFER_SESSION_OPTIONS_INIT \
  { sizeof(sape2_infer_session_options), 0, NULL, NULL }

/// Something that runs a model: threads, and the memory of intermediate results. A session serves
/// one call at a time; threads that run a model at once have a session each. Options may be null.
SAPE2_INFER_API sape2_infer_status
sape2_infer_session_new(const sape2_infer_model* model, const sape2_infer_session_options* options,
                        sape2_infer_session** session);

SAPE2_INFER_API sape2_infer_status sape2_infer_session_free(sape2_infer_session* session);

/// Images as models take them: (count, channels, height, width), contiguous, and normalised:
/// `(pixel / 255 − mean) / deviation` for pixels of bytes. Height and width may differ from those
/// trained at if patches divide them.
typedef struct sape2_infer_batch {
  size_t struct_size;
  const float* pixels;
  int64_t count;
  int64_t height;
  int64_t width;
} sape2_infer_batch;
#define SAPE2_INFER_BATCH_INIT \
  { sizeof(sape2_infer_batch), NULL, 0, 0, 0 }

/// Logits (count, classes) of a batch; `capacity` is how many floats `logits` has room for. After
/// the first call of a size no memory is taken.
SAPE2_INFER_API sape2_infer_status sape2_infer_run(sape2_infer_session* session,
                                                   const sape2_infer_batch* images, float* logits,
                                                   size_t capacity);

/// A picture of any size: rows from top to bottom, the channels of a pixel side by side.
typedef struct sape2_infer_image {
  size_t struct_size;
  const uint8_t* pixels;
  int64_t height;
  int64_t width;
  int64_t channels;   ///< 3: RGB, 1: grey
  int64_t row_bytes;  ///< from one row to the next; 0: width · channels
} sape2_infer_image;
#define SAPE2_INFER_IMAGE_INIT \
  { sizeof(sape2_infer_image), NULL, 0, 0, 3, 0 }

/// Logits (count, classes) of pictures. As in `sape2 predict`, each is scaled until it covers the
/// size that the model was trained at, its middle is cut out, and it is normalised; a model of one
/// channel gets the brightness.
SAPE2_INFER_API sape2_infer_status sape2_infer_run_images(sape2_infer_session* session,
                                                          const sape2_infer_image* images,
                                                          size_t count, float* logits,
                                                          size_t capacity);

/// The first step of sape2_infer_run_images() alone: the picture as float32 (channels, height,
/// width) that sape2_infer_run() takes. Height and width 0: as trained.
SAPE2_INFER_API sape2_infer_status sape2_infer_prepare_image(const sape2_infer_model* model,
                                                             const sape2_infer_image* image,
                                                             int64_t height, int64_t width,
                                                             float* pixels, size_t capacity);

/// A class that an image may show.
typedef struct sape2_infer_guess {
  int64_t index;
  float probability;  ///< softmax of the logits
  const char* name;   ///< the model's
} sape2_infer_guess;

/// The `top` most probable classes for the logits of one image, the best first. `top` is at most
/// the number of classes.
SAPE2_INFER_API sape2_infer_status sape2_infer_rank(const sape2_infer_model* model,
                                                    const float* logits, size_t top,
                                                    sape2_infer_guess* guesses);

// ---- Inspection ------------------------------------------------------------------------------

/// A model that has looked at one image, kept to be asked what its attention is made of.
SAPE2_INFER_API sape2_infer_status sape2_infer_inspection_new(sape2_infer_session* session,
                                                              const sape2_infer_batch* image,
                                                              sape2_infer_inspection** inspection);

SAPE2_INFER_API sape2_infer_status sape2_infer_inspection_free(sape2_infer_inspection* inspection);

/// What R patches see along one axis; n is `cols` for x and `rows` for y.
typedef struct sape2_infer_axis {
  const float* gates;      ///< (heads, R, n)
  const float* positions;  ///< (heads, R, n): the soft positions that the gates add up to
  const uint8_t* clamped;  ///< (heads, R, n): 1 if a position lies beyond the end of the table
  const float* bias;       ///< (heads, R, patches): this axis's part of the bias
} sape2_infer_axis;

/// One layer's attention as R chosen patches see it. What its encoding does not have is null. The
/// arrays are the inspection's, and valid until its next sape2_infer_inspection_rows().
typedef struct sape2_infer_rows {
  size_t struct_size;
  int64_t heads;
  int64_t rows;  ///< of the grid; patch (y, x) has the number y·cols + x
  int64_t cols;
  int64_t prefix;             ///< tokens before the patches
  const float* attention;     ///< (heads, R, prefix + rows·cols): weights, a row sums to one
  const float* bias;          ///< (heads, R, rows·cols): before gain and scale
  const float* logit_factor;  ///< (heads): the bias times this is added to the logits
  sape2_infer_axis x;
  sape2_infer_axis y;
  const float* gates;      ///< (heads, R, tokens): CoPE's, over the raster order
  const float* positions;  ///< (heads, R, tokens): … and their sums
  int32_t is_distance;     ///< 1 if the bias is a distance
} sape2_infer_rows;
#define SAPE2_INFER_ROWS_INIT                                                         \
  {                                                                                   \
    sizeof(sape2_infer_rows), 0, 0, 0, 0, NULL, NULL, NULL, {NULL, NULL, NULL, NULL}, \
        {NULL, NULL, NULL, NULL}, NULL, NULL, 0                                       \
  }

/// What `count` patches see in a layer, counted from 0.
SAPE2_INFER_API sape2_infer_status sape2_infer_inspection_rows(sape2_infer_inspection* inspection,
                                                               int64_t layer,
                                                               const int64_t* patches, size_t count,
                                                               sape2_infer_rows* rows);

#ifdef __cplusplus
}
#endif

#endif
