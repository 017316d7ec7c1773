#include "cli/recipe_flags.h"

#include "sape2/train/recipe_fields.h"

#include <CLI/CLI.hpp>

#include <algorithm>

namespace sape2::cli {

void RecipeFlags::declare(CLI::App& app) {
  app.add_option_function<std::string>(
         "--recipe",
         [this](const std::string& name) {
           name_ = name;
           name_given_ = true;
         },
         "Recipe that ships (paper, strong, quick) or a .toml file (default: " + name_ + ")")
      ->type_name("NAME|FILE");
  const auto& fields = train::recipe_fields();
  values_.resize(fields.size());
  for (std::size_t i = 0; i < fields.size(); ++i) {
    std::string flag = "--" + fields[i].key;
    std::ranges::replace(flag, '_', '-');
    app.add_option(flag, values_[i], fields[i].summary)
        ->type_name("VALUE")
        ->group("Values of the recipe");
  }
}

void RecipeFlags::use_unless_given(const std::string& name) {
  if (!name_given_) name_ = name;
}

train::Recipe RecipeFlags::recipe() const {
  train::Recipe recipe = train::load_recipe(name_);
  const auto& fields = train::recipe_fields();
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (!values_[i].empty()) fields[i].set_text(recipe, values_[i], "");
  }
  recipe.validate();
  return recipe;
}

}  // namespace sape2::cli
