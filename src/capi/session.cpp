#include "sape2/infer/session.h"

#include "sape2/base/cpu.h"
#include "sape2/data/image.h"
#include "sape2/infer/prediction.h"

#include "capi/objects.h"

#include <cstddef>
#include <exception>
#include <limits>
#include <mutex>

using namespace sape2;
using namespace sape2::capi;

namespace sape2::capi {
namespace {

infer::SessionOptions options_of(const sape2_infer_session_options* given, SessionObject& object) {
  infer::SessionOptions options;
  if (given == nullptr) return options;
  check_struct(given, "options");
  if (given->parallel_for != nullptr) {
    object.threads = std::make_unique<CallersThreads>(given->parallel_for, given->context);
    options.executor = object.threads.get();
    return options;
  }
  if (given->threads < 0 || given->threads > base::kMostThreads) {
    throw Failure(SAPE2_INFER_BAD_ARGUMENT,
                  "a session cannot have " + std::to_string(given->threads) +
                      " threads, expected 0 … " + std::to_string(base::kMostThreads));
  }
  options.threads = given->threads;
  return options;
}

// By division: a count from nowhere must not wrap around.
void check_room(std::size_t capacity, std::size_t images, std::size_t classes) {
  if (images <= capacity / classes) return;
  throw Failure(SAPE2_INFER_BAD_ARGUMENT, "there is room for " + std::to_string(capacity) +
                                              " logits, but " + std::to_string(images) +
                                              " images have " + std::to_string(classes) + " each");
}

data::Image picture_of(const sape2_infer_image& given) {
  check_struct(&given, "image");
  check_given(given.pixels, "image.pixels");
  const auto fits = [](std::int64_t value) {
    return value >= 1 && static_cast<std::uint64_t>(value) <= data::kMaxImagePixels;
  };
  if (!fits(given.height) || !fits(given.width) ||
      static_cast<std::uint64_t>(given.height) * given.width > data::kMaxImagePixels) {
    throw Failure(SAPE2_INFER_BAD_ARGUMENT,
                  "an image of " + std::to_string(given.width) + " × " +
                      std::to_string(given.height) + " pixels cannot be used, expected 1 × 1 to " +
                      std::to_string(data::kMaxImagePixels >> 20) + " million pixels");
  }
  if (given.channels != 1 && given.channels != 3) {
    throw Failure(SAPE2_INFER_BAD_ARGUMENT, "an image has " + std::to_string(given.channels) +
                                                " channels, expected 3 (RGB) or 1 (grey)");
  }
  const std::int64_t packed = given.width * given.channels;
  const std::int64_t stride = given.row_bytes == 0 ? packed : given.row_bytes;
  if (stride < packed) {
    throw Failure(SAPE2_INFER_BAD_ARGUMENT, "the row_bytes of an image is " +
                                                std::to_string(given.row_bytes) +
                                                ", but a row of " + std::to_string(given.width) +
                                                " pixels has " + std::to_string(packed) + " bytes");
  }
  if (stride > std::numeric_limits<std::ptrdiff_t>::max() / given.height) {
    throw Failure(SAPE2_INFER_BAD_ARGUMENT,
                  "the row_bytes of an image is " + std::to_string(given.row_bytes) + ", so that " +
                      std::to_string(given.height) + " rows are more than memory can hold");
  }
  data::Image image{given.height, given.width, given.channels, {}};
  image.pixels.reserve(static_cast<std::size_t>(given.height * packed));
  for (std::int64_t y = 0; y < given.height; ++y) {
    const std::uint8_t* row = given.pixels + y * stride;
    image.pixels.insert(image.pixels.end(), row, row + packed);
  }
  return image;
}

}  // namespace

void CallersThreads::parallel_for(std::int64_t count, const Body& body) const {
  // An exception must not cross the caller's code.
  struct Work {
    const Body& body;
    std::mutex mutex;
    std::exception_ptr failure;
  } work{body, {}, {}};
  const sape2_infer_body call = [](void* pointer, std::int64_t begin, std::int64_t end) {
    auto& shared = *static_cast<Work*>(pointer);
    try {
      if (begin < end) shared.body(begin, end);
    } catch (...) {
      const std::lock_guard lock(shared.mutex);
      shared.failure = std::current_exception();
    }
  };
  if (count > 0) function_(context_, count, call, &work);
  if (work.failure) std::rethrow_exception(work.failure);
}

infer::ImageBatch batch_of(const sape2_infer_batch* images) {
  check_struct(images, "images");
  check_given(images->pixels, "images.pixels");
  if (images->count < 1) {
    throw Failure(SAPE2_INFER_BAD_ARGUMENT, "the batch has " + std::to_string(images->count) +
                                                " images, expected at least one");
  }
  return {images->pixels, images->count, images->height, images->width};
}

}  // namespace sape2::capi

sape2_infer_status sape2_infer_session_new(const sape2_infer_model* model,
                                           const sape2_infer_session_options* options,
                                           sape2_infer_session** session) {
  return guarded(SAPE2_INFER_BAD_ARGUMENT, [&] {
    const auto owner = behind<ModelObject>(model);
    check_given(session, "session");
    auto object = std::make_shared<SessionObject>();
    const infer::SessionOptions chosen = options_of(options, *object);
    object->session = std::make_unique<infer::Session>(owner->model, chosen);
    hand_out(std::move(object), session);
  });
}

sape2_infer_status sape2_infer_session_free(sape2_infer_session* session) {
  return guarded(SAPE2_INFER_INTERNAL, [&] { free_object<SessionObject>(session); });
}

sape2_infer_status sape2_infer_run(sape2_infer_session* session, const sape2_infer_batch* images,
                                   float* logits, size_t capacity) {
  return guarded(SAPE2_INFER_BAD_ARGUMENT, [&] {
    const auto object = behind<SessionObject>(session);
    const infer::ImageBatch batch = batch_of(images);
    check_given(logits, "logits");
    const auto classes = static_cast<std::size_t>(object->session->model().config().vit.classes);
    check_room(capacity, static_cast<std::size_t>(batch.count), classes);
    const Held held(*object);
    object->session->run(batch, {logits, classes * static_cast<std::size_t>(batch.count)});
  });
}

sape2_infer_status sape2_infer_run_images(sape2_infer_session* session,
                                          const sape2_infer_image* images, size_t count,
                                          float* logits, size_t capacity) {
  return guarded(SAPE2_INFER_BAD_ARGUMENT, [&] {
    const auto object = behind<SessionObject>(session);
    check_struct(images, "images");
    check_given(logits, "logits");
    if (count < 1) {
      throw Failure(SAPE2_INFER_BAD_ARGUMENT, "there are no images, expected at least one");
    }
    const nn::ModelConfig& config = object->session->model().config();
    const auto classes = static_cast<std::size_t>(config.vit.classes);
    check_room(capacity, count, classes);
    const nn::Size2d size = config.vit.image_size;
    const auto one = static_cast<std::size_t>(config.vit.channels * size.height * size.width);
    const Held held(*object);
    if (count > object->pixels.max_size() / one) {
      throw Failure(SAPE2_INFER_BAD_ARGUMENT,
                    "there are " + std::to_string(count) + " images, more than memory can hold");
    }
    object->pixels.resize(count * one);
    const std::size_t stride = images->struct_size;
    for (std::size_t i = 0; i < count; ++i) {
      // Structs of a newer header may be longer than ours.
      const auto* place = reinterpret_cast<const unsigned char*>(images) + i * stride;
      const data::Image picture = picture_of(*reinterpret_cast<const sape2_infer_image*>(place));
      infer::prepare_picture(config, picture, size,
                             std::span(object->pixels).subspan(i * one, one));
    }
    object->session->run(
        {object->pixels.data(), static_cast<std::int64_t>(count), size.height, size.width},
        {logits, count * classes});
  });
}

sape2_infer_status sape2_infer_prepare_image(const sape2_infer_model* model,
                                             const sape2_infer_image* image, int64_t height,
                                             int64_t width, float* pixels, size_t capacity) {
  return guarded(SAPE2_INFER_BAD_ARGUMENT, [&] {
    const auto object = behind<ModelObject>(model);
    check_given(image, "image");
    check_given(pixels, "pixels");
    const nn::ModelConfig& config = object->model.config();
    const nn::Size2d size{height == 0 ? config.vit.image_size.height : height,
                          width == 0 ? config.vit.image_size.width : width};
    infer::prepare_picture(config, picture_of(*image), size, {pixels, capacity});
  });
}

sape2_infer_status sape2_infer_rank(const sape2_infer_model* model, const float* logits, size_t top,
                                    sape2_infer_guess* guesses) {
  return guarded(SAPE2_INFER_BAD_ARGUMENT, [&] {
    const auto object = behind<ModelObject>(model);
    check_given(logits, "logits");
    check_given(guesses, "guesses");
    const std::span all(logits, object->class_names.size());
    if (top < 1 || top > all.size()) {
      throw Failure(SAPE2_INFER_BAD_ARGUMENT, "the best " + std::to_string(top) +
                                                  " classes are asked for, expected 1 … " +
                                                  std::to_string(all.size()));
    }
    for (const infer::Prediction& prediction :
         infer::ranked(object->model.config(), all, static_cast<std::int64_t>(top))) {
      *guesses++ = {prediction.index, static_cast<float>(prediction.probability),
                    object->class_names[static_cast<std::size_t>(prediction.index)].c_str()};
    }
  });
}
