// Any text as a recipe: refused in a sentence, or values within their bounds.
#include "sape2/base/error.h"
#include "sape2/train/recipe.h"
#include "sape2/train/recipe_fields.h"

#include "support/fuzz_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sape2::train;
  try {
    const Recipe recipe = parse_recipe({reinterpret_cast<const char*>(data), size}, "input");
    // Values that were taken are taken again.
    Recipe again;
    for (const RecipeField& field : recipe_fields()) field.set(again, field.get(recipe), "again: ");
    sape2::testing::require(again == recipe, "a value changed when it was set again");
  } catch (const sape2::Error& error) {
    sape2::testing::require_sentence(error.what());
  }
  return 0;
}
