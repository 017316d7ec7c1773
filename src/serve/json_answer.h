#pragma once

#include "sape2/infer/prediction.h"

#include "serve/answer.h"

#include <nlohmann/json.hpp>

#include <span>
#include <string>

namespace sape2::serve {

inline constexpr const char* kJsonType = "application/json";

/// On one line; what is not UTF-8 is replaced.
std::string json_text(const nlohmann::ordered_json& json);
Answer json_answer(const nlohmann::ordered_json& json);

/// Classes with their probabilities, as inspect() and pixel() tell them.
nlohmann::ordered_json predictions_json(std::span<const infer::Prediction> predictions);

}  // namespace sape2::serve
