#include "sape2/train/recipe.h"

#include "sape2/train/recipe_fields.h"
#include "sape2/train/run_config.h"

#include "support/error_text.h"
#include "support/scratch_folder.h"
#include "train/support.h"

#include <gtest/gtest.h>

#include <set>

namespace sape2::train::test {
namespace {

using namespace sape2::testing;

TEST(Recipe, ThoseThatShipAreFoundAndRead) {
  std::set<std::string> names;
  for (const ShippedRecipe& recipe : shipped_recipes()) names.insert(recipe.name);
  EXPECT_EQ(names, (std::set<std::string>{"paper", "quick", "segmentation", "strong"}));
  for (const std::string& name : names) load_recipe(name).validate();
}

TEST(Recipe, PaperSaysWhatThePaperStates) {
  const Recipe recipe = load_recipe("paper");
  EXPECT_EQ(recipe.epochs, 400);
  EXPECT_EQ(recipe.batch_size, 128);
  EXPECT_EQ(recipe.optimizer, "adam");
  EXPECT_EQ(recipe.learning_rate, 1e-3);
  EXPECT_EQ(recipe.final_learning_rate, 1e-5);
  EXPECT_EQ(recipe.weight_decay, 5e-5);
  EXPECT_TRUE(recipe.auto_augment);
  EXPECT_EQ(recipe.clip_norm, 1) << "not stated; without it some encodings diverge";
}

TEST(Recipe, CommentsMayHaveAnyLetter) {
  EXPECT_EQ(parse_recipe("\xEF\xBB\xBF# d\u00e9but\nepochs = 7  # sieben \u2026\n", "r").epochs, 7);
}

TEST(Recipe, CanBeCopiedAndGivenAsAFile) {
  const ScratchFolder folder;
  for (const ShippedRecipe& recipe : shipped_recipes()) {
    const auto copy = folder / (recipe.name + ".toml");
    std::filesystem::copy(recipe.file, copy);
    EXPECT_EQ(load_recipe(copy.native()), load_recipe(recipe.name));
  }
}

TEST(Recipe, EveryFieldCanBeSetInAFileAndByText) {
  for (const RecipeField& field : recipe_fields()) {
    struct Example {
      std::string toml, text;
    };
    Example example{"0.5", "0.5"};
    if (field.member.index() == 0) example = {"true", "true"};
    if (field.member.index() == 1) example = {"16", "16"};
    if (!field.choices.empty())
      example = {"\"" + field.choices.back() + "\"", field.choices.back()};
    // Bounds that others set.
    const std::string others = field.key == "final_learning_rate" ? "learning_rate = 1\n"
                               : field.key == "accumulation"      ? "batch_size = 32\n"
                               : field.key == "scale_high"        ? "scale_low = 0.2\n"
                                                                  : "";
    const Recipe from_file = parse_recipe(others + field.key + " = " + example.toml, "test");
    Recipe from_text = parse_recipe(others, "test");
    EXPECT_NE(field.get(from_file), field.get(from_text)) << field.key;
    field.set_text(from_text, example.text, "");
    EXPECT_EQ(from_file, from_text) << field.key;
  }
}

struct Refused {
  std::string toml;
  std::vector<std::string> words;
};

class RefusedRecipe : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedRecipe, IsAnsweredWithASentence) {
  const std::string text = error_text([] { parse_recipe(GetParam().toml, "mine.toml"); });
  expect_contains(text, "mine.toml");
  for (const std::string& word : GetParam().words) expect_contains(text, word);
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedRecipe,
    ::testing::Values(
        Refused{"learnign_rate = 0.1", {"learnign_rate", "learning_rate"}},
        Refused{"zzz = 1", {"zzz", "valid are epochs"}},
        Refused{"epochs = 0", {"epochs is 0", "whole number from 1"}},
        Refused{"epochs = 2.5", {"epochs is 2.5", "whole number"}},
        Refused{"epochs = \"ten\"", {"epochs is \"ten\"", "whole number"}},
        Refused{"learning_rate = -0.1", {"learning_rate is -0.1"}},
        Refused{"learning_rate = 0", {"learning_rate is 0"}},
        Refused{"learning_rate = nan", {"learning_rate is nan"}},
        Refused{"learning_rate = inf", {"learning_rate is inf"}},
        Refused{"final_learning_rate = 0.5", {"final_learning_rate is 0.5", "learning_rate 0.001"}},
        Refused{"epochs = 3\nwarmup_epochs = 4", {"warmup_epochs is 4", "3 epochs"}},
        Refused{"beta2 = 1", {"beta2 is 1", "below 1"}},
        Refused{"label_smoothing = 1.0", {"label_smoothing is 1"}},
        Refused{"optimizer = \"sgd\"", {"optimizer is \"sgd\"", "\"adamw\" or \"adam\""}},
        Refused{"precision = \"fp8\"", {"precision", "bfloat16"}},
        Refused{"flip = 1", {"flip is 1", "true or false"}},
        Refused{"batch_size = 10\naccumulation = 3", {"batch_size is 10", "accumulation = 3"}},
        Refused{"auto_augment = true\nrand_augment_operations = 2", {"choose one"}},
        Refused{"epochs = [1, 2]", {"epochs", "one value"}},
        Refused{"[section]\nepochs = 1", {"section"}}, Refused{"epochs = ", {"line 1", "TOML"}},
        Refused{"epochs = 1\nepochs = 2", {"TOML"}},
        Refused{"epochs = 1\nflip = tru\u00e9", {"line 2", "beyond ASCII"}},
        Refused{"epochs = 1 # \u00e9\nseed\uFEEF = 1", {"line 2", "beyond ASCII"}},
        Refused{"optimizer = \"#\" \u00e9", {"line 1", "beyond ASCII"}},
        Refused{"flip = t\nepochs = 1", {"line 1", "TOML"}}));

TEST(Recipe, UnknownNamesAndFilesAreAnswered) {
  expect_contains(error_text([] { load_recipe("strnog"); }), "the nearest is \"strong\"");
  expect_contains(error_text([] { load_recipe("no/such.toml"); }), "no/such.toml");
  expect_contains(error_text([] { load_recipe("/"); }), "\"/\"");
}

TEST(RunConfig, ComesBackFromJson) {
  RunConfig config = tiny_run();
  config.recipe.precision = "bfloat16";
  config.device = "cuda:1";
  config.seed = ~uint64_t{0};
  config.init = "a \"b\".safetensors";
  config.init_checksum = "crc32c:01234567";
  config.recipe.learning_rate = 0.1 + 0.2;
  const RunConfig back = run_config_from_json(to_json(config), "config.json");
  EXPECT_EQ(back, config);
  EXPECT_EQ(fingerprint(back), fingerprint(config));
}

TEST(RunConfig, FingerprintTellsRunsApart) {
  const RunConfig config = tiny_run();
  RunConfig other = config;
  other.threads = 5;
  EXPECT_EQ(fingerprint(other), fingerprint(config));
  other.seed = 8;
  EXPECT_NE(fingerprint(other), fingerprint(config));
  other = config;
  other.recipe.learning_rate *= 1.0000001;
  EXPECT_NE(fingerprint(other), fingerprint(config));
  other = config;
  other.model.encoding = nn::EncodingSpec::parse("ape");
  EXPECT_NE(fingerprint(other), fingerprint(config));
}

TEST(RunConfig, HostileTextIsAnswered) {
  const std::string good = to_json(tiny_run());
  const auto refused = [](const std::string& text) {
    const std::string sentence = error_text([&] { run_config_from_json(text, "config.json"); });
    expect_contains(sentence, "config.json");
    return sentence;
  };
  refused("");
  refused("[]");
  refused(good.substr(0, good.size() / 2));
  refused(std::string(100'000, '['));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  expect_contains(refused(with("\"seed\": 7", "\"seed\": -7")), "seed");
  expect_contains(refused(with("\"seed\"", "\"sede\"")), "seed");
  expect_contains(refused(with("\"format\": 1", "\"format\": 2")), "newer");
  expect_contains(refused(with("\"epochs\": 3", "\"epochs\": 1e300")), "epochs");
  expect_contains(refused(with("\"heads\": 2", "\"heads\": 5")), "5");
  expect_contains(refused(with("\"train_images\": 0", "\"train_images\": \"all\"")),
                  "train_images");
  expect_contains(
      refused(with("\"init\": \"\"", "\"init\": \"\", \"init_checksum\": \"crc32c:01234567\"")),
      "init is empty, but init_checksum is there");
  expect_contains(refused(with("\"init\": \"\"", "\"init\": \"a\\u0000b\"")), "zero byte");
}

TEST(RunConfig, BfloatNeedsAGpu) {
  RunConfig config = tiny_run();
  config.recipe.precision = "bfloat16";
  expect_contains(error_text([&] { config.validate(); }), "needs a GPU");
}

}  // namespace
}  // namespace sape2::train::test
