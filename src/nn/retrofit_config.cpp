#include "sape2/nn/retrofit_config.h"

#include "sape2/base/error.h"
#include "sape2/nn/encoding_definition.h"

namespace sape2::nn {

bool same_positions(const EncodingSpec& one, const EncodingSpec& other) {
  const EncodingSpec mine = one.without_ape(), theirs = other.without_ape();
  if (mine.name() != theirs.name()) return false;
  const bool has_span = encoding_definition(mine.name()).find_option("span") != nullptr;
  return !has_span || mine.choice("span") == theirs.choice("span");
}

EncodingSpec retrofitted(const EncodingSpec& trained, const EncodingSpec& wanted) {
  if (same_positions(trained, wanted)) return wanted;
  const auto start = silent_start(wanted);
  return start ? start->encoding : wanted;
}

void check_retrofit(const ModelConfig& trained, const ModelConfig& wanted) {
  const auto same = [](const char* what, auto has, auto asked) {
    if (has == asked) return;
    throw Error(std::string("the trained model has ") + what + " " + std::to_string(has) +
                ", but a model with " + what + " " + std::to_string(asked) +
                " was asked for; it can start only from one of its own size");
  };
  const ViTConfig &mine = wanted.vit, &theirs = trained.vit;
  same("depth", theirs.depth, mine.depth);
  same("width", theirs.width, mine.width);
  same("heads", theirs.heads, mine.heads);
  same("MLP width", theirs.mlp_width(), mine.mlp_width());
}

}  // namespace sape2::nn
