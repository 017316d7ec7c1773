#include "sape2/components.h"

#include "cli/run_sape2.h"
#include "cli/small_model.h"
#include "support/file_bytes.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace sape2::cli::test {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;

// What a command reads it does not write over, whatever its name is.
TEST(Commands, KeepTheFilesThatTheyRead) {
  const ScratchFolder folder;
  const std::string model = save_model(folder), link = folder / "link.safetensors";
  fs::create_symlink(model, link);
  const auto keeps = [&](const std::vector<std::string>& arguments, const std::string& file) {
    const std::string before = file_bytes(file);
    expect_mistake(run_sape2(arguments), 1, "this command reads that file");
    EXPECT_EQ(file_bytes(file), before);
  };
  for (const std::string& out : {model, link, (folder / "./best.safetensors").native()}) {
    keeps({"export", model, "-o", out}, model);
    keeps({"convert", model, "-o", out}, model);
    keeps({"explain", model, "shapes:test:0", "--safetensors", out}, model);
    keeps({"eval", model, "--data", "shapes", "--images", "4", "--confusion", out}, model);
  }
  const std::string recipe = folder / "recipe.toml";
  std::ofstream(recipe) << "epochs = 1\n";
  keeps({"bench", "train", "--recipe", recipe, "--json", recipe}, recipe);
  if (!SAPE2_HAVE_IMAGES || !SAPE2_HAVE_DRAWING) return;
  const std::string picture = save_picture(folder, "one.png");
  keeps({"explain", model, picture, "-o", picture}, picture);
  keeps({"predict", model, picture, "--sheet", picture}, picture);
  // A model is read whatever its name ends in; of a folder, the best one.
  const std::string run = folder / "run", drawn = folder / "run/drawn.png";
  fs::create_directory(run);
  fs::copy_file(model, drawn);
  fs::create_symlink("drawn.png", fs::path(run) / "best.safetensors");
  keeps({"predict", drawn, picture, "--sheet", drawn}, drawn);
  keeps({"predict", run, picture, "--sheet", drawn}, drawn);
}

}  // namespace
}  // namespace sape2::cli::test
