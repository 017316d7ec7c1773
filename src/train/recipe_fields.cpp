#include "sape2/train/recipe_fields.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace sape2::train {
namespace {

constexpr double kMostEpochs = 1e6;
constexpr double kMostSteps = 1e9;

std::string shown(const RecipeValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text == nullptr ? to_string(value) : in_quotes(*text);
}

std::string list_of(const std::vector<std::string>& choices) {
  std::string text;
  for (const std::string& choice : choices) {
    text += (text.empty() ? "" : " or ") + ("\"" + choice + "\"");
  }
  return text;
}

template <typename T>
bool holds(const RecipeField& field) {
  return std::holds_alternative<T Recipe::*>(field.member);
}

std::string expectation(const RecipeField& field) {
  if (holds<bool>(field)) return "true or false";
  if (holds<std::string>(field)) return list_of(field.choices);
  return fmt::format("a {} from {} to {}{}", holds<int64_t>(field) ? "whole number" : "number",
                     field.least, field.below ? "below " : "", field.most);
}

[[noreturn]] void refuse(const RecipeField& field, const std::string& value,
                         std::string_view where) {
  throw Error(fmt::format("{}{} is {}, expected {}", where, field.key, value, expectation(field)));
}

bool within(const RecipeField& field, double number) {
  return number >= field.least && (field.below ? number < field.most : number <= field.most);
}

template <typename T>
std::optional<T> number_of(const std::string& text) {
  T number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || text.empty()) return std::nullopt;
  return number;
}

}  // namespace

std::string to_string(const RecipeValue& value) {
  struct Show {
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(int64_t number) const { return std::to_string(number); }
    std::string operator()(double number) const { return fmt::format("{}", number); }
    std::string operator()(const std::string& text) const { return text; }
  };
  return std::visit(Show{}, value);
}

RecipeValue RecipeField::get(const Recipe& recipe) const {
  return std::visit([&](auto pointer) { return RecipeValue(recipe.*pointer); }, member);
}

void RecipeField::set(Recipe& recipe, const RecipeValue& value, std::string_view where) const {
  if (const auto* pointer = std::get_if<bool Recipe::*>(&member)) {
    if (!std::holds_alternative<bool>(value)) refuse(*this, shown(value), where);
    recipe.** pointer = std::get<bool>(value);
  } else if (const auto* text = std::get_if<std::string Recipe::*>(&member)) {
    const auto* given = std::get_if<std::string>(&value);
    if (given == nullptr || std::ranges::find(choices, *given) == choices.end()) {
      refuse(*this, shown(value), where);
    }
    recipe.** text = *given;
  } else if (const auto* whole = std::get_if<int64_t Recipe::*>(&member)) {
    const auto* number = std::get_if<int64_t>(&value);
    if (number == nullptr || !within(*this, static_cast<double>(*number))) {
      refuse(*this, shown(value), where);
    }
    recipe.** whole = *number;
  } else {
    double number = std::nan("");
    if (const auto* given = std::get_if<double>(&value)) number = *given;
    if (const auto* given = std::get_if<int64_t>(&value)) number = static_cast<double>(*given);
    if (!within(*this, number)) refuse(*this, shown(value), where);
    recipe.*std::get<double Recipe::*>(member) = number;
  }
}

void RecipeField::set_text(Recipe& recipe, const std::string& text, std::string_view where) const {
  if (holds<std::string>(*this)) return set(recipe, text, where);
  if (holds<bool>(*this)) {
    if (text != "true" && text != "false") refuse(*this, in_quotes(text), where);
    return set(recipe, text == "true", where);
  }
  if (holds<int64_t>(*this)) {
    const auto number = number_of<int64_t>(text);
    if (!number) refuse(*this, in_quotes(text), where);
    return set(recipe, *number, where);
  }
  const auto number = number_of<double>(text);
  if (!number) refuse(*this, in_quotes(text), where);
  set(recipe, *number, where);
}

const std::vector<RecipeField>& recipe_fields() {
  using R = Recipe;
  static const std::vector<RecipeField> fields{
      {"epochs", "Epochs of training", &R::epochs, 1, kMostEpochs},
      {"passes", "Times an epoch goes over the training images", &R::passes, 1, 1000},
      {"batch_size", "Images of one optimiser step", &R::batch_size, 1, 1 << 20},
      {"accumulation", "Pieces a batch is worked through in", &R::accumulation, 1, 1 << 20},
      {.key = "optimizer",
       .summary = "adamw (decoupled decay) or adam (decay joins the gradient)",
       .member = &R::optimizer,
       .choices = {"adamw", "adam"}},
      {"learning_rate", "Learning rate after the warm-up", &R::learning_rate, 0, 10},
      {"final_learning_rate", "Where the cosine ends", &R::final_learning_rate, 0, 10},
      {"warmup_epochs", "Epochs of linear warm-up", &R::warmup_epochs, 0, kMostEpochs},
      {"beta1", "Decay of Adam's mean", &R::beta1, 0, 1, true},
      {"beta2", "Decay of Adam's square", &R::beta2, 0, 1, true},
      {"epsilon", "Added to Adam's denominator", &R::epsilon, 1e-20, 1},
      {"weight_decay", "Decay of the weights of linear layers", &R::weight_decay, 0, 10},
      {"clip_norm", "Largest norm of the gradient, 0: any", &R::clip_norm, 0, 1e6},
      {"ema_decay", "Decay of the averaged weights, 0: no average", &R::ema_decay, 0, 1, true},
      {.key = "precision",
       .summary = "float32, or on a GPU bfloat16",
       .member = &R::precision,
       .choices = {"float32", "bfloat16"}},
      {"label_smoothing", "Probability spread over all classes", &R::label_smoothing, 0, 1, true},
      {"stochastic_depth", "Probability of skipping a branch in the last layer",
       &R::stochastic_depth, 0, 1, true},
      {"dropout", "Probability of dropping a channel", &R::dropout, 0, 1, true},
      {"crop_padding", "Pixels of padding before a random crop, 0: no crop", &R::crop_padding, 0,
       1024},
      {"flip", "Turn left and right at random", &R::flip},
      {"auto_augment", "AutoAugment with the policy for CIFAR-10", &R::auto_augment},
      {"rand_augment_operations", "RandAugment's operations an image, 0: none",
       &R::rand_augment_operations, 0, 16},
      {"rand_augment_magnitude", "RandAugment's strength", &R::rand_augment_magnitude, 0, 30},
      {"mixup_alpha", "MixUp's alpha, 0: no MixUp", &R::mixup_alpha, 0, 100},
      {"cutmix_alpha", "CutMix's alpha, 0: no CutMix", &R::cutmix_alpha, 0, 100},
      {"mix_probability", "Share of images that are mixed", &R::mix_probability, 0, 1},
      {"erase_probability", "Probability of random erasing", &R::erase_probability, 0, 1},
      {"repeats", "Copies of an image in a batch (repeated augmentation)", &R::repeats, 1, 64},
      {.key = "scale_low",
       .summary = "Segmentation: smallest factor that views are scaled by",
       .member = &R::scale_low,
       .least = 0.1,
       .most = 10,
       .is_newer = true},
      {.key = "scale_high",
       .summary = "Segmentation: largest factor that views are scaled by",
       .member = &R::scale_high,
       .least = 0.1,
       .most = 10,
       .is_newer = true},
      {.key = "colour_jitter",
       .summary = "Segmentation: strength of changes of colour, 0: none",
       .member = &R::colour_jitter,
       .least = 0,
       .most = 1,
       .is_newer = true},
      {"evaluate_epochs", "Epochs from one evaluation to the next", &R::evaluate_epochs, 1,
       kMostEpochs},
      {"checkpoint_steps", "Steps from one checkpoint to the next, 0: at epochs' ends",
       &R::checkpoint_steps, 0, kMostSteps},
      {"log_steps", "Steps from one line of the log to the next", &R::log_steps, 1, kMostSteps},
  };
  return fields;
}

const RecipeField& recipe_field(std::string_view key, std::string_view where) {
  const auto found = std::ranges::find(recipe_fields(), key, &RecipeField::key);
  if (found != recipe_fields().end()) return *found;
  std::vector<std::string> keys;
  for (const RecipeField& field : recipe_fields()) keys.push_back(field.key);
  throw Error(
      fmt::format("{}the key {} is not known; {}", where, in_quotes(key), name_advice(key, keys)));
}

}  // namespace sape2::train
