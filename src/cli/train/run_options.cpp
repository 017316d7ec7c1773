#include "cli/train/run_options.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/checksum.h"
#include "sape2/io/model_file.h"
#include "sape2/nn/presets.h"
#include "sape2/nn/retrofit_config.h"
#include "sape2/train/device.h"
#include "sape2/train/recipe_fields.h"
#include "sape2/train/task.h"

#include "cli/limits.h"
#include "cli/threads.h"
#include "cli/whole_number.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace sape2::cli {
namespace {

constexpr const char* kDefaultEncoding = "sape2-rel-k";

std::string flag_of(const std::string& key) {
  std::string flag = "--" + key;
  std::ranges::replace(flag, '_', '-');
  return flag;
}

std::string task_help() {
  std::string text;
  for (const nn::TaskDefinition& task : nn::task_definitions()) {
    text += (text.empty() ? "" : "; ") + task.name + ": " + task.summary;
  }
  return text + " (default: " + nn::kClassification + ")";
}

void check_sizes(const nn::ModelConfig& trained, const nn::ModelConfig& wanted,
                 const std::string& file) {
  try {
    nn::check_retrofit(trained, wanted);
  } catch (const Error& error) {
    throw Error(in_quotes(file) + ": " + error.what() +
                "; leave the flags of the model's size out, or train without --init");
  }
}

}  // namespace

void RunOptions::declare(CLI::App& app) {
  // A flag that is repeated counts as it was written last, as scripts expect.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto count = whole_number(0, kMostImages);
  app.add_option("--data", data_.name, "Data set, as in `sape2 data list`")->type_name("NAME");
  app.add_option("--task", task_, task_help())->type_name("TASK");
  app.add_option("--root", data_.root, "Folder to look for it in")->type_name("FOLDER");
  app.add_option("--image-size", data_.image_size, "Resize images to this height and width")
      ->check(count)
      ->type_name("N");
  app.add_option("--train-images", data_.train_images, "Train on the first N images only")
      ->check(count)
      ->type_name("N");
  app.add_option("--test-images", data_.test_images, "Test on the first N images only")
      ->check(count)
      ->type_name("N");
  app.add_option("--seed", seed_, "Seed of weights, order and augmentation (default: 0)")
      ->type_name("N");
  app.add_option("--device", device_, "cpu, cuda or cuda:N (default: cpu)")->type_name("DEVICE");

  const std::string model = "Model";
  app.add_option("--model", model_, "Preset (default: " + preferred_model_ + ")")
      ->type_name("PRESET")
      ->group(model);
  const auto number = [&](const char* flag, auto& value, const char* summary) {
    app.add_option(flag, value, summary)->type_name("N")->group(model);
  };
  number("--patch-size", patch_size_, "Height and width of a patch");
  number("--depth", depth_, "Layers");
  number("--width", width_, "Channels of a token");
  number("--heads", heads_, "Attention heads");
  number("--mlp-ratio", mlp_ratio_, "Width of the MLP over that of a token");
  number("--registers", registers_, "Learnable tokens without meaning");
  number("--layer-scale", layer_scale_, "Where the factors of LayerScale start");
  app.add_option("--pooling", pooling_, "mean, sequence or class-token")
      ->type_name("KIND")
      ->group(model);

  const std::string recipe = "Recipe";
  app.add_option("--recipe", recipe_,
                 "paper, strong, quick, segmentation, or a TOML file (default: quick)")
      ->type_name("NAME|FILE")
      ->group(recipe);
  for (const train::RecipeField& field : train::recipe_fields()) {
    app.add_option_function<std::string>(
           flag_of(field.key),
           [this, key = field.key](const std::string& text) { recipe_values_[key] = text; },
           field.summary)
        ->type_name("VALUE")
        ->group(recipe);
  }
}

void RunOptions::prefer(std::string model, std::string recipe) {
  preferred_model_ = std::move(model);
  preferred_recipe_ = std::move(recipe);
}

void RunOptions::check() const {
  train::task_named(task_);
  if (data_.name.empty()) throw Error("--data is missing; `sape2 data list` shows the data sets");
  make_recipe();
  if (!model_.empty()) nn::preset(model_);
  train::device_named(device_);
}

train::RunData RunOptions::load_data() const {
  check();
  return train::load_run_data(data_, train::task_named(task_).target());
}

data::Dataset RunOptions::load_training_images() const {
  check();
  return train::load_split(data_, data::Split::train, train::task_named(task_).target());
}

train::Recipe RunOptions::make_recipe() const {
  train::Recipe recipe = train::load_recipe(this->recipe());
  for (const auto& [key, text] : recipe_values_) {
    train::recipe_field(key, "").set_text(recipe, text, "");
  }
  if (recipe_values_.contains("epochs") && !recipe_values_.contains("warmup_epochs")) {
    recipe.train_for(recipe.epochs);
  }
  recipe.validate();
  train::task_named(task_).check(recipe);
  return recipe;
}

void RunOptions::start_from(const std::string& file) {
  if (file.empty()) return;
  trained_ = io::check_model(io::SafetensorsFile::open(file));
  init_ = std::filesystem::absolute(file).lexically_normal().native();
  init_checksum_ = io::content_checksum(file);
}

nn::EncodingSpec RunOptions::fitted(const nn::EncodingSpec& encoding) const {
  return trained_ ? nn::retrofitted(trained_->encoding, encoding) : encoding;
}

std::string RunOptions::model_name() const {
  return trained_ && model_.empty() ? std::filesystem::path(init_).filename().native() : model();
}

nn::ModelConfig RunOptions::base_model() const {
  nn::ModelConfig config = trained_.value_or(nn::ModelConfig());
  if (!model_.empty() || !trained_) config.vit = nn::preset(model()).config;
  nn::ViTConfig& vit = config.vit;
  if (patch_size_) vit.patch_size = {*patch_size_, *patch_size_};
  vit.depth = depth_.value_or(vit.depth);
  vit.width = width_.value_or(vit.width);
  vit.heads = heads_.value_or(vit.heads);
  vit.registers = registers_.value_or(vit.registers);
  vit.mlp_ratio = mlp_ratio_.value_or(vit.mlp_ratio);
  if (layer_scale_) vit.layer_scale = layer_scale_;
  if (!pooling_.empty()) vit.pooling = nn::parse_pooling(pooling_);
  return config;
}

train::RunConfig RunOptions::make_config(const data::Dataset& images,
                                         const std::string& encoding) const {
  train::RunConfig config;
  config.recipe = make_recipe();
  config.model = base_model();
  config.model.task = task_;
  if (!encoding.empty() || !trained_) {
    config.model.encoding =
        fitted(nn::EncodingSpec::parse(encoding.empty() ? kDefaultEncoding : encoding));
  }
  config.data = train::absolute_paths(data_);
  config.seed = seed_;
  config.init = init_;
  config.init_checksum = init_checksum_;
  config.device = device_;
  config.threads = threads_in_use();
  train::fit_to(config.model, images, config.recipe);
  config.validate();
  if (trained_) check_sizes(*trained_, config.model, init_);
  return config;
}

std::string RunOptions::default_folder(const train::RunConfig& config) const {
  const std::string task = task_ == nn::kClassification ? "" : task_ + "-";
  std::string name = task + data_.name + "-" + model_name() + "-" +
                     config.model.encoding.to_string() + "-seed" + std::to_string(seed_);
  // Brackets, commas and slashes are awkward in a shell or not possible.
  std::ranges::replace_if(
      name, [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '+' && c != '='; },
      '_');
  return "runs/" + name;
}

}  // namespace sape2::cli
