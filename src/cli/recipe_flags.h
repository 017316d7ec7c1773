#pragma once

#include "sape2/train/recipe.h"

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace sape2::cli {

/// `--recipe NAME|FILE`, and a flag for every value of a recipe that overrides it.
class RecipeFlags {
 public:
  explicit RecipeFlags(std::string default_name) : name_(std::move(default_name)) {}

  void declare(CLI::App& app);

  const std::string& name() const { return name_; }
  void use_unless_given(const std::string& name);

  /// The recipe with the values that were given as flags.
  train::Recipe recipe() const;

 private:
  std::string name_;
  bool name_given_ = false;
  std::vector<std::string> values_;  // as given, in the order of train::recipe_fields(); or empty
};

}  // namespace sape2::cli
