#include "cli/run_sape2.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

namespace sape2::cli::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace sape2::testing;

/// Keeps the data sets of this machine out of sight.
class DataCommand : public ::testing::Test {
 protected:
  Outcome run(const std::vector<std::string>& arguments) {
    return run_sape2(arguments, {{"SAPE2_DATA", (scratch_.path() / "data").string()},
                                 {"XDG_CACHE_HOME", (scratch_.path() / "cache").string()}});
  }

  ScratchFolder scratch_;
};

TEST_F(DataCommand, ListsEveryDataSet) {
  const Outcome text = run({"data", "list"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  for (const char* part : {"cifar10", "cifar100", "fashion-mnist", "oxford-pets", "shapes",
                           "folder:PATH", "50000 + 10000", "sape2 data get cifar100"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part;
  }
  const json all = json::parse(run({"data", "list", "--json"}).out);
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[1]["name"], "cifar100");
  EXPECT_EQ(all[1]["classes"], 100);
  EXPECT_TRUE(all[1]["folder"].is_null());
}

TEST_F(DataCommand, TellsWhatADataSetHolds) {
  const Outcome text = run({"data", "info", "shapes"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  for (const char* part :
       {"4000 for training, 1000 for tests", "32 × 32, 3 channels", "crescent"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part;
  }
  const json info =
      json::parse(run({"data", "info", "shapes", "--json", "--image-size", "16"}).out);
  EXPECT_EQ(info["height"], 16);
  EXPECT_EQ(info["classes"][3]["name"], "frame");
  EXPECT_EQ(info["classes"][3]["train"], 400);
}

TEST_F(DataCommand, MistakesAreOneSentence) {
  expect_mistake(run({"data"}), 1, "list, get NAME or info NAME");
  expect_mistake(run({"data", "get"}), 1, "say which data set");
  expect_mistake(run({"data", "info"}), 1, "say which data set");
  expect_mistake(run({"data", "get", "cifar-100"}), 1, "\"cifar100\"");
  expect_mistake(run({"data", "get", "folder"}), 1, "folder:PATH");
  expect_mistake(run({"data", "info", "cifar10"}), 1, "sape2 data get cifar10");
  expect_mistake(run({"data", "info", "folder:/nowhere/at/all"}), 1, "/nowhere/at/all");
  expect_mistake(run({"data", "info", "shapes", "--image-size", "0"}), 2, "--image-size");
  expect_mistake(run({"data", "list", "--jsn"}), 2, "--jsn");
}

TEST_F(DataCommand, OfflineSaysWhatToPutWhere) {
  const Outcome outcome = run({"data", "get", "cifar100", "--offline"});
  expect_mistake(outcome, 1, "cifar-100-binary.tar.gz");
  EXPECT_NE(outcome.err.find((scratch_.path() / "data").string()), std::string::npos);
}

TEST_F(DataCommand, DamagedFilesAreNamed) {
  const fs::path folder = scratch_.path() / "data/cifar10";
  fs::create_directories(folder);
  for (int i = 1; i <= 5; ++i) {
    std::ofstream(folder / ("data_batch_" + std::to_string(i) + ".bin")) << "short";
  }
  std::ofstream(folder / "test_batch.bin") << "short";
  expect_mistake(run({"data", "info", "cifar10"}), 1, "data_batch_1.bin");
}

TEST_F(DataCommand, GetOfShapesNeedsNothing) {
  const Outcome outcome = run({"data", "get", "shapes"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.out.find("generated"), std::string::npos);
}

}  // namespace
}  // namespace sape2::cli::test
