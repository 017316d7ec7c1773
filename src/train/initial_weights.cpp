#include "train/initial_weights.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/checksum.h"
#include "sape2/io/model_file.h"
#include "sape2/nn/encoding_definition.h"
#include "sape2/nn/retrofit.h"
#include "sape2/nn/vit.h"
#include "sape2/train/run_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sape2::train {
namespace {

// Another file under the same name would be another run.
void refuse_other_file(const RunConfig& config) {
  const std::string checksum = io::content_checksum(config.init);
  if (config.init_checksum.empty() || checksum == config.init_checksum) return;
  throw Error(
      fmt::format("{} is not the file that this run was begun with: its checksum is {}, "
                  "config.json has {}; put "
                  "that file back, or begin a new run",
                  in_quotes(config.init), checksum, in_quotes(config.init_checksum)));
}

std::string named(const std::vector<std::string>& tensors) {
  return tensors.front() +
         (tensors.size() > 1 ? fmt::format(" and {} more", tensors.size() - 1) : std::string());
}

// Why a model computes something else than the one it starts from.
std::vector<std::string> reasons(const nn::ModelConfig& model, const nn::ModelConfig& trained) {
  std::vector<std::string> all;
  const auto &from = trained.encoding, &to = model.encoding;
  if (from.has_ape() && !to.has_ape()) all.emplace_back("the learnt vectors of ape are dropped");
  const auto before = from.without_ape(), after = to.without_ape();
  if (!nn::same_positions(from, to)) {
    if (before.name() != "none") all.push_back(before.to_string() + " is dropped");
    if (!nn::silent_start(after)) all.push_back(after.to_string() + " acts from the start");
  } else if (before != after) {
    all.push_back(before.to_string() + " becomes " + after.to_string());
  }
  if (model.task != trained.task) {
    all.push_back(fmt::format("its task is {} in place of {}", model.task, trained.task));
  }
  const auto &vit = model.vit, &old = trained.vit;
  if (vit.channels != old.channels) all.emplace_back("images have other channels");
  if (vit.patch_size != old.patch_size) all.emplace_back("patches have another size");
  if (vit.prefix() != old.prefix()) all.emplace_back("there are other tokens before the patches");
  if (vit.pooling != old.pooling) all.emplace_back("tokens are pooled in another way");
  if (vit.layer_scale.has_value() != old.layer_scale.has_value()) {
    all.emplace_back("LayerScale comes or goes");
  }
  return all;
}

std::string new_head(const nn::ModelConfig& model, const nn::ModelConfig& trained) {
  return model.vit.classes == trained.vit.classes
             ? fmt::format("the head starts anew, for {} other classes", model.vit.classes)
             : fmt::format("the head starts anew, for {} classes in place of {}", model.vit.classes,
                           trained.vit.classes);
}

std::string verdict(const nn::Retrofit& result, bool head_is_new, const nn::ModelConfig& model,
                    const nn::ModelConfig& trained) {
  if (result.unchanged()) {
    const std::string start =
        result.zeroed.empty()
            ? ""
            : fmt::format("the new encoding starts at zero ({}): ", named(result.zeroed));
    return start + (head_is_new ? "up to its head, " : "") +
           "the model computes what it did before";
  }
  const auto why = reasons(model, trained);
  return fmt::format(
      "the model does not compute what it did before: {}",
      why.empty() ? "some of its tensors are new" : fmt::format("{}", fmt::join(why, ", ")));
}

}  // namespace

std::vector<std::string> start_from_file(nn::ViT& model, const RunConfig& config) {
  const auto trained = io::load_model(config.init);
  refuse_other_file(config);
  nn::Retrofit result;
  try {
    result = nn::retrofit(model, *trained);
  } catch (const Error& error) {
    throw Error(in_quotes(config.init) + ": " + error.what());
  }
  std::vector<std::string> sentences{fmt::format("{} of {} tensors come from {} ({})", result.kept,
                                                 model.parameters().size(), config.init,
                                                 trained->config().encoding.to_string())};
  auto others = result.fresh;
  const bool head =
      std::erase_if(others, [](const auto& name) { return name.starts_with("head."); }) > 0;
  if (head) sentences.push_back(new_head(model.config(), trained->config()));
  if (!others.empty()) sentences.push_back("as in a new model: " + named(others));
  sentences.push_back(verdict(result, head, model.config(), trained->config()));
  return sentences;
}

}  // namespace sape2::train
