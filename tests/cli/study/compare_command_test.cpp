#include "sape2/components.h"
#include "sape2/data/image.h"

#include "cli/run_sape2.h"
#include "support/error_text.h"
#include "support/file_bytes.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

namespace sape2::cli::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace sape2::testing;

std::vector<std::string> tiny_comparison(const fs::path& out) {
  return {"compare",
          "--encodings",
          "ape,sape2-k[gain=-1]",
          "--data",
          "shapes",
          "--model",
          "vit-micro",
          "--epochs",
          "1",
          "--warmup-epochs",
          "0",
          "--batch-size",
          "32",
          "--train-images",
          "64",
          "--test-images",
          "20",
          "--out",
          out};
}

TEST(Compare, EndsWithTheTableAndTheReport) {
  const ScratchFolder folder;
  const Outcome first = run_sape2(tiny_comparison(folder / "out"));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_NE(first.out.find("sape2-k[gain=-1]"), std::string::npos) << first.out;
  EXPECT_NE(first.out.find((folder / "out/report.html").native()), std::string::npos);
  const Outcome second = run_sape2(tiny_comparison(folder / "out"));
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_NE(second.out.find("trained already"), std::string::npos) << second.out;
}

TEST(Compare, WritesTheReportOfResultsAnew) {
  const ScratchFolder folder;
  ASSERT_EQ(run_sape2(tiny_comparison(folder / "out")).exit_code, 0);
  const auto results = folder / "out/results.json";
  const Outcome again = run_sape2({"compare", "--from", results, "--out", folder / "again"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_NE(again.out.find("This training is short"), std::string::npos) << again.out;
  for (const char* name : {"table.md", "results.json", "report.html"}) {
    EXPECT_EQ(file_bytes(folder / "again" / name), file_bytes(folder / "out" / name)) << name;
  }
  expect_mistake(run_sape2({"compare", "--from", results, "--out", folder / "x", "--epochs", "3"}),
                 2, "--epochs");
  expect_mistake(run_sape2({"compare", "--from", folder / "none", "--out", folder / "x"}), 1,
                 "none");
  expect_mistake(run_sape2({"compare", "--from", folder.path(), "--out", folder / "x"}), 1,
                 "cannot read");
  std::ofstream(folder / "torn.json") << "{";
  expect_mistake(run_sape2({"compare", "--from", folder / "torn.json", "--out", folder / "x"}), 1,
                 "no results.json");
  EXPECT_FALSE(fs::exists(folder / "x")) << "a mistake must leave nothing behind";
}

// What ./demo shows: the tables of results/encodings.md.
TEST(Compare, ReadsTheResultsThatShip) {
  const ScratchFolder folder;
  for (const auto& file : fs::directory_iterator(SAPE2_RESULTS_DIR)) {
    if (file.path().extension() != ".json" || file.path().stem() == "probes" ||
        file.path().stem() == "gates") {
      continue;
    }
    SCOPED_TRACE(file.path());
    const Outcome outcome = run_sape2({"compare", "--from", file.path(), "--out", folder / "out"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }
}

TEST(Compare, AnswersMistakesWithASentence) {
  const ScratchFolder folder;
  const std::string out = folder / "out";
  const auto asked = [&](const std::vector<std::string>& more) {
    return run_sape2(with({"compare", "--data", "shapes", "--out", out}, more));
  };
  expect_mistake(asked({}), 2, "--encodings");
  expect_mistake(asked({"--encodings", "ape", "--family"}), 2, "--family");
  expect_mistake(asked({"--paper", "table3"}), 2, "table3");
  expect_mistake(asked({"--encodings", "apee"}), 1, "\"ape\"");
  expect_mistake(asked({"--encodings", "ape,ape"}), 1, "twice");
  expect_mistake(asked({"--encodings", "ape", "--model", "vit-smal"}), 1, "\"vit-small\"");
  expect_mistake(asked({"--encodings", "ape", "--recipe", "quik"}), 1, "\"quick\"");
  expect_mistake(asked({"--encodings", "ape", "--learning-rate", "fast"}), 1, "learning_rate");
  expect_mistake(asked({"--encodings", "ape", "--seeds", "0"}), 2, "--seeds");
  expect_mistake(asked({"--encodings", "ape", "--image-size", "30"}), 1, "30");
  expect_mistake(asked({"--encodings", "ape", "--baseline", "rope"}), 1, "they are ape");
  expect_mistake(asked({"--encodings", "ape", "--baseline", "apee"}), 1, "\"ape\"");
  expect_mistake(asked({"--encodings", "ape", "--tune", "learning-rate=1"}), 2, "--tune-epochs");
  expect_mistake(asked({"--encodings", "ape", "--tune-epochs", "1"}), 2, "--tune");
  const auto tuned = [&](const std::vector<std::string>& tune) {
    return asked(with({"--encodings", "ape", "--tune-epochs", "1", "--epochs", "1"}, tune));
  };
  expect_mistake(tuned({"--tune", "rate=1"}), 1, "\"rate\"");
  expect_mistake(tuned({"--tune", "flip=true", "--tune", "flip=false"}), 1, "twice");
  expect_mistake(asked({"--encodings", "ape", "--jobs", "0"}), 2, "--jobs");
  expect_mistake(run_sape2({"compare", "--merge", folder / "a", "--out", out}), 1, "--merge");
  expect_mistake(run_sape2({"compare", "--merge", folder / "a", folder / "b", "--out", out}), 1,
                 "cannot read");
  EXPECT_FALSE(fs::exists(folder / "out")) << "a mistake must leave nothing behind";
}

json results_of(const fs::path& out) {
  return json::parse(file_bytes(out / "results.json"));
}

// Without what the clock and the process say.
json figures_of(const fs::path& out) {
  const json results = results_of(out);
  json figures;
  for (const json& row : results["rows"]) {
    for (const json& run : row["runs"]) {
      figures.push_back({row["encoding"], run["seed"], run["top-1"], run["loss"]});
    }
  }
  return figures;
}

TEST(Compare, ShowsDifferencesToABaseline) {
  const ScratchFolder folder;
  const Outcome outcome =
      run_sape2(with(tiny_comparison(folder / "out"), {"--seeds", "2", "--baseline", "ape"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_contains(outcome.out, "less ape");
  expect_contains(outcome.out, "2 seeds)");
  EXPECT_EQ(results_of(folder / "out")["rows"][1]["difference"]["seeds"].size(), 2u);
  // Of what is trained already, another one.
  const Outcome again = run_sape2({"compare", "--from", folder / "out", "--baseline",
                                   "sape2-k[gain=-1]", "-o", folder / "again"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  expect_contains(again.out, "less sape2-k[gain=-1]");
  expect_mistake(
      run_sape2({"compare", "--from", folder / "out", "--baseline", "rope", "-o", folder / "x"}), 1,
      "they are ape, sape2-k[gain=-1]");
}

TEST(Compare, SeveralProcessesComeToTheSameFigures) {
  const ScratchFolder folder;
  const auto arguments = [&](const char* out, const std::vector<std::string>& more) {
    return with(with(tiny_comparison(folder / out), {"--seeds", "2"}), more);
  };
  const Outcome alone = run_sape2(arguments("alone", {"--threads", "1"}));
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const Outcome together = run_sape2(arguments("together", {"--threads", "3", "--jobs", "3"}));
  ASSERT_EQ(together.exit_code, 0) << together.err << together.out;
  EXPECT_EQ(figures_of(folder / "together"), figures_of(folder / "alone"));
  EXPECT_EQ(results_of(folder / "together")["finished"], true);
  EXPECT_TRUE(fs::exists(folder / "together/process-3.log"));
  EXPECT_EQ(file_bytes(folder / "together/process-2.log").find("sape2: "), std::string::npos);
}

TEST(Compare, MergesWhatWasTrainedApart) {
  const ScratchFolder folder;
  const auto seed = [&](const char* out, const char* number) {
    const auto words = with(tiny_comparison(folder / out), {"--seed", number});
    ASSERT_EQ(run_sape2(words).exit_code, 0);
  };
  seed("one", "0");
  seed("two", "1");
  const Outcome outcome =
      run_sape2({"compare", "--merge", folder / "one", folder / "two/results.json", "--baseline",
                 "ape", "-o", folder / "both"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_contains(outcome.out, "seeds 0 to 1");
  expect_contains(outcome.out, "2 seeds)");
  EXPECT_EQ(figures_of(folder / "both").size(), 4u);

  json other = results_of(folder / "one");
  other["rows"][0]["runs"][0]["top-1"] = 99.0;
  std::ofstream(folder / "other.json") << other;
  expect_mistake(
      run_sape2({"compare", "--merge", folder / "both", folder / "other.json", "-o", folder / "x"}),
      1, "for ape, seed 0: 99.00 %");
  const std::string before = file_bytes(folder / "one/results.json");
  expect_mistake(
      run_sape2({"compare", "--merge", folder / "one", folder / "two", "-o", folder / "one"}), 1,
      "this command reads that file");
  EXPECT_EQ(file_bytes(folder / "one/results.json"), before);
  EXPECT_FALSE(fs::exists(folder / "x"));
}

void save_class(const fs::path& folder, std::uint8_t grey, int images) {
  fs::create_directories(folder);
  for (int i = 0; i < images; ++i) {
    const auto value = static_cast<std::uint8_t>(grey + i);
    data::write_png(folder / (std::to_string(i) + ".png"),
                    {32, 32, 3, std::vector<std::uint8_t>(32 * 32 * 3, value)});
  }
}

// Test images that cannot be read stop the runs, and do not touch the tuning: it never opens them.
TEST(Compare, TuningNeverOpensTheTestImages) {
  if (!SAPE2_HAVE_IMAGES) GTEST_SKIP() << "this build reads no images";
  const ScratchFolder folder;
  const fs::path images = folder / "images";
  save_class(images / "train/dark", 10, 24);
  save_class(images / "train/light", 200, 24);
  for (const char* name : {"dark", "light"}) {
    fs::create_directories(images / "test" / name);
    std::ofstream(images / "test" / name / "0.png") << "this is no image";
  }
  const std::vector<std::string> arguments{"compare",
                                           "--encodings",
                                           "ape,none",
                                           "--data",
                                           "folder:" + images.native(),
                                           "--model",
                                           "vit-micro",
                                           "--epochs",
                                           "1",
                                           "--batch-size",
                                           "16",
                                           "--tune",
                                           "learning-rate=1e-3,5e-4",
                                           "--tune-epochs",
                                           "1",
                                           "--out",
                                           folder / "out"};
  const Outcome torn = run_sape2(arguments);
  EXPECT_EQ(torn.exit_code, 1);
  expect_contains(torn.err, (images / "test").native());
  for (const char* encoding : {"ape", "none"}) {
    for (const char* rate : {"0.001", "0.0005"}) {
      EXPECT_TRUE(fs::exists(folder / "out/tuning" / encoding /
                             (std::string("learning_rate=") + rate) / "result.json"))
          << encoding << " " << rate;
    }
  }
  save_class(images / "test/dark", 15, 4);
  save_class(images / "test/light", 205, 4);
  const Outcome whole = run_sape2(arguments);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  expect_contains(whole.out, "tuning none, learning_rate 0.0005: trained already");
  expect_contains(whole.out, "4 images held out of the training images");
  EXPECT_EQ(figures_of(folder / "out").size(), 2u);
}

}  // namespace
}  // namespace sape2::cli::test
