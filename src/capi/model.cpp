#include "sape2/infer/model.h"

#include "sape2/infer/prediction.h"
#include "sape2/version.h"

#include "capi/objects.h"

#include <cstddef>

using namespace sape2;
using namespace sape2::capi;

namespace sape2::capi {
namespace {

infer::ModelOptions options_of(const sape2_infer_model_options* given) {
  infer::ModelOptions options;
  if (given == nullptr) return options;
  check_struct(given, "options");
  switch (given->arithmetic) {
    case SAPE2_INFER_FLOAT32:
      options.arithmetic = infer::Arithmetic::float32;
      return options;
    case SAPE2_INFER_BFLOAT16:
      options.arithmetic = infer::Arithmetic::bfloat16;
      return options;
  }
  throw Failure(SAPE2_INFER_BAD_ARGUMENT,
                "the arithmetic is " + std::to_string(given->arithmetic) +
                    ", expected SAPE2_INFER_FLOAT32 or SAPE2_INFER_BFLOAT16");
}

}  // namespace

ModelObject::ModelObject(infer::Model opened)
    : model(std::move(opened)), encoding(model.config().encoding.to_string()) {
  nn::require_classifier(model.config(), "the C interface");
  for (std::int64_t i = 0; i < model.config().vit.classes; ++i) {
    class_names.push_back(infer::class_name(model.config(), i));
  }
}

}  // namespace sape2::capi

uint32_t sape2_infer_abi_version(void) {
  return SAPE2_INFER_ABI_VERSION;
}

const char* sape2_infer_version(void) {
  return SAPE2_VERSION;
}

const char* sape2_infer_last_error(void) {
  return last_sentence();
}

sape2_infer_status sape2_infer_model_open(const char* path,
                                          const sape2_infer_model_options* options,
                                          sape2_infer_model** model) {
  return guarded(SAPE2_INFER_BAD_FILE, [&] {
    check_given(path, "path");
    check_given(model, "model");
    hand_out(std::make_shared<ModelObject>(infer::Model::open(path, options_of(options))), model);
  });
}

sape2_infer_status sape2_infer_model_from_memory(const void* file, size_t bytes, const char* name,
                                                 const sape2_infer_model_options* options,
                                                 sape2_infer_model** model) {
  return guarded(SAPE2_INFER_BAD_FILE, [&] {
    check_given(file, "file");
    check_given(model, "model");
    const std::span content(static_cast<const std::byte*>(file), bytes);
    hand_out(std::make_shared<ModelObject>(infer::Model::from_memory(
                 content, name != nullptr ? name : "the model in memory", options_of(options))),
             model);
  });
}

sape2_infer_status sape2_infer_model_free(sape2_infer_model* model) {
  return guarded(SAPE2_INFER_INTERNAL, [&] { free_object<ModelObject>(model); });
}

sape2_infer_status sape2_infer_describe(const sape2_infer_model* model,
                                        sape2_infer_description* description) {
  return guarded(SAPE2_INFER_INTERNAL, [&] {
    const auto object = behind<ModelObject>(model);
    check_struct(description, "description");
    const nn::ModelConfig& config = object->model.config();
    sape2_infer_description& d = *description;
    d.classes = config.vit.classes;
    d.channels = config.vit.channels;
    d.image_height = config.vit.image_size.height;
    d.image_width = config.vit.image_size.width;
    d.patch_height = config.vit.patch_size.height;
    d.patch_width = config.vit.patch_size.width;
    d.depth = config.vit.depth;
    d.width = config.vit.width;
    d.heads = config.vit.heads;
    d.prefix = config.vit.prefix();
    d.encoding = object->encoding.c_str();
    d.mean = config.mean.empty() ? nullptr : config.mean.data();
    d.deviation = config.deviation.empty() ? nullptr : config.deviation.data();
    d.weight_bytes = object->model.bytes();
  });
}

sape2_infer_status sape2_infer_class_name(const sape2_infer_model* model, int64_t index,
                                          const char** name) {
  return guarded(SAPE2_INFER_INTERNAL, [&] {
    const auto object = behind<ModelObject>(model);
    check_given(name, "name");
    const auto classes = static_cast<std::int64_t>(object->class_names.size());
    if (index < 0 || index >= classes) {
      throw Failure(SAPE2_INFER_BAD_ARGUMENT, "there is no class " + std::to_string(index) +
                                                  ", the model's classes are 0 … " +
                                                  std::to_string(classes - 1));
    }
    *name = object->class_names[static_cast<std::size_t>(index)].c_str();
  });
}
