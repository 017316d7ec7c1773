#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"
#include "sape2/train/recipe.h"
#include "sape2/train/recipe_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

// toml++ asserts a few things that a file may break (a "[" alone on its line), and reports them as
// errors right after: without this, a build with assertions would end there.
#define TOML_ASSERT(expression) static_cast<void>(0)
#include <toml++/toml.h>

namespace sape2::train {
namespace fs = std::filesystem;
namespace {

constexpr std::uintmax_t kLargestFile = 1 << 20;
// A program in the build tree lies at most this many folders below the source tree.
constexpr int kParentsSearched = 5;

std::optional<RecipeValue> value_of(const toml::node& node) {
  if (const auto* value = node.as_boolean()) return RecipeValue(value->get());
  if (const auto* value = node.as_integer()) return RecipeValue(value->get());
  if (const auto* value = node.as_floating_point()) return RecipeValue(value->get());
  if (const auto* value = node.as_string()) return RecipeValue(value->get());
  return std::nullopt;
}

fs::path recipe_folder() {
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (error) return {};
  const fs::path installed = folder.parent_path() / "share" / "sape2" / "recipes";
  if (fs::is_directory(installed, error)) return installed;
  for (int i = 0; i < kParentsSearched && folder.has_relative_path(); ++i) {
    folder = folder.parent_path();
    if (fs::exists(folder / "recipes" / "quick.toml", error)) return folder / "recipes";
  }
  return {};
}

std::string read_text(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  if (error) {
    throw Error("cannot read the recipe " + in_quotes(file) + ": " + error.message());
  }
  if (size > kLargestFile) {
    throw Error("the recipe " + in_quotes(file) + " has " + std::to_string(size) +
                " bytes, too many for a recipe");
  }
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) throw Error("cannot read the recipe " + in_quotes(file));
  return text.str();
}

/// Refuses letters beyond ASCII but in comments: no key and no value has any, and toml++ 3.3 has
/// undefined behaviour where one stands between them.
void check_letters(std::string_view text, const std::string& where) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a mark that says "UTF-8"
  // Where strings may span lines, what looks like a comment may be none.
  const bool spans = text.find("\"\"\"") != text.npos || text.find("'''") != text.npos;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::string_view before = line.substr(0, line.find('#'));
    const bool strings = spans || before.find_first_of("\"'") != before.npos;
    const auto beyond = [](unsigned char c) { return c >= 0x80; };
    if (std::ranges::any_of(strings ? line : before, beyond)) {
      throw Error(fmt::format("{}line {} has a letter beyond ASCII, which only comments may have",
                              where, number));
    }
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
}

bool is_file_name(const std::string& text) {
  return text.ends_with(".toml") || text.find('/') != std::string::npos;
}

}  // namespace

Recipe parse_recipe(std::string_view text, std::string_view source) {
  const std::string where = "recipe " + in_quotes(source) + ": ";
  check_letters(text, where);
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    // The description shows the text as it is, line breaks and all.
    const std::string quoted = in_quotes(error.description());
    throw Error(fmt::format("{}line {} is not valid TOML: {}", where, error.source().begin.line,
                            std::string_view(quoted).substr(1, quoted.size() - 2)));
  }
  Recipe recipe;
  for (const auto& [key, node] : table) {
    const RecipeField& field = recipe_field(key.str(), where);
    const auto value = value_of(node);
    if (!value) throw Error(where + field.key + " is a table, list or date, expected one value");
    field.set(recipe, *value, where);
  }
  try {
    recipe.validate();
  } catch (const Error& error) {
    throw Error(where + error.what());
  }
  return recipe;
}

std::vector<ShippedRecipe> shipped_recipes() {
  std::vector<ShippedRecipe> recipes;
  const fs::path folder = recipe_folder();
  if (folder.empty()) return recipes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".toml") {
      recipes.push_back({entry.path().stem().string(), entry.path()});
    }
  }
  std::ranges::sort(recipes, {}, &ShippedRecipe::name);
  return recipes;
}

Recipe load_recipe(const std::string& name_or_file) {
  if (is_file_name(name_or_file)) return parse_recipe(read_text(name_or_file), name_or_file);
  const auto shipped = shipped_recipes();
  std::vector<std::string> names;
  for (const ShippedRecipe& recipe : shipped) {
    if (recipe.name == name_or_file) return parse_recipe(read_text(recipe.file), name_or_file);
    names.push_back(recipe.name);
  }
  if (names.empty()) {
    throw Error("recipe " + in_quotes(name_or_file) +
                " cannot be looked up, as the folder of recipes is not beside the program; give "
                "the path of a .toml file");
  }
  throw Error("recipe " + in_quotes(name_or_file) + " is not known; " +
              name_advice(name_or_file, names) + ", or give the path of a .toml file");
}

}  // namespace sape2::train
