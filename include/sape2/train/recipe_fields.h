#pragma once

#include "sape2/train/recipe.h"

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sape2::train {

using RecipeValue = std::variant<bool, int64_t, double, std::string>;

/// As a flag gives it: "true", "5", "0.001".
std::string to_string(const RecipeValue& value);

/// One value of a recipe: what recipe files, command-line flags and run configurations share.
struct RecipeField {
  using Member =
      std::variant<bool Recipe::*, int64_t Recipe::*, double Recipe::*, std::string Recipe::*>;

  std::string key;
  std::string summary;
  Member member;
  /// Bounds of a number; `below` excludes the upper one.
  double least = 0;
  double most = 0;
  bool below = false;
  /// The valid values of a string.
  std::vector<std::string> choices = {};
  /// Left out of config.json where it has its default: runs of versions that did not know it keep
  /// their fingerprints.
  bool is_newer = false;

  RecipeValue get(const Recipe& recipe) const;

  /// Throws Error with one sentence that begins with `where` when the value is of another kind, out
  /// of bounds or not among the choices.
  void set(Recipe& recipe, const RecipeValue& value, std::string_view where) const;

  /// The same from text, as a flag gives it.
  void set_text(Recipe& recipe, const std::string& text, std::string_view where) const;
};

const std::vector<RecipeField>& recipe_fields();

/// The field of that key; throws Error with the nearest valid key otherwise.
const RecipeField& recipe_field(std::string_view key, std::string_view where);

}  // namespace sape2::train
