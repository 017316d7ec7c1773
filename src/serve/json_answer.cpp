#include "serve/json_answer.h"

namespace sape2::serve {

using Json = nlohmann::ordered_json;

std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Answer json_answer(const Json& json) {
  return {kJsonType, json_text(json)};
}

Json predictions_json(std::span<const infer::Prediction> predictions) {
  Json list = Json::array();
  for (const infer::Prediction& one : predictions) {
    list.push_back({{"class", one.name}, {"index", one.index}, {"probability", one.probability}});
  }
  return list;
}

}  // namespace sape2::serve
