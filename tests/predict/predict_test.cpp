#include "sape2/version.h"

#include "cli/run_sape2.h"
#include "sape2_infer.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

namespace sape2::predict::test {
namespace {

using cli::test::Outcome;
using cli::test::run_program;
using cli::test::run_sape2;
using Words = std::vector<std::string>;
namespace fs = std::filesystem;
using namespace sape2::testing;

const std::string kModel = SAPE2_SOURCE_DIR "/models/cifar10-sape2-rel-k.safetensors";
const std::string kShip = SAPE2_SOURCE_DIR "/examples/images/ship.png";

Outcome run_predict(const Words& words) {
  return run_program(SAPE2_PREDICT, words);
}

Words after_predict(Words words) {
  words.insert(words.begin(), "predict");
  return words;
}

TEST(Predict, SaysWhatThePlainProgramSays) {
  const Words words = {kModel, kShip, "--top", "3"};
  const Outcome ours = run_predict(words);
  EXPECT_EQ(ours.exit_code, 0) << ours.err;
  EXPECT_EQ(ours.out, run_sape2(after_predict(words)).out);
}

TEST(Predict, JsonIsThatOfThePlainProgram) {
  for (const char* name : {"cifar10-sape2-rel-k", "cifar10-sape2-k"}) {
    const std::string model = SAPE2_SOURCE_DIR "/models/" + std::string(name) + ".safetensors";
    const Words words = {model, kShip, kShip, "--json", "--size=48", "--top=10"};
    const auto ours = nlohmann::json::parse(run_predict(words).out);
    const auto plain = nlohmann::json::parse(run_sape2(after_predict(words)).out);
    ASSERT_EQ(ours.size(), 2u);
    ASSERT_EQ(plain.size(), 2u);
    EXPECT_EQ(ours[0]["image"], plain[0]["image"]);
    ASSERT_EQ(ours[1]["predictions"].size(), 10u);
    for (std::size_t i = 0; i < 10; ++i) {
      const auto &one = ours[1]["predictions"][i], &other = plain[1]["predictions"][i];
      EXPECT_EQ(one["class"], other["class"]);
      EXPECT_NEAR(one["probability"].get<double>(), other["probability"].get<double>(), 1e-5);
    }
  }
}

// Their answer would be a class of the whole image.
TEST(Predict, AModelForSegmentationIsRefusedHereAndInC) {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  const Outcome trained = run_sape2({"train",
                                     "--task",
                                     "segmentation",
                                     "--data",
                                     "shapes",
                                     "--depth",
                                     "1",
                                     "--width",
                                     "16",
                                     "--heads",
                                     "2",
                                     "--epochs",
                                     "1",
                                     "--train-images",
                                     "32",
                                     "--test-images",
                                     "8",
                                     "--batch-size",
                                     "16",
                                     "--out",
                                     run});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Outcome refused = run_predict({run, kShip});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(refused.err.starts_with("sape2-predict: the model's task is segmentation"))
      << refused.err;
  sape2_infer_model* model = nullptr;
  EXPECT_EQ(sape2_infer_model_open((fs::path(run) / "best.safetensors").c_str(), nullptr, &model),
            SAPE2_INFER_BAD_FILE);
  EXPECT_EQ(model, nullptr);
  EXPECT_NE(std::string(sape2_infer_last_error()).find("which the C interface cannot serve"),
            std::string::npos)
      << sape2_infer_last_error();
}

TEST(Predict, MistakesGetTheSentencesOfThePlainProgram) {
  const ScratchFolder folder;
  const std::string empty = folder.path() / "empty.png";
  std::ofstream(empty).flush();
  const std::vector<Words> mistakes = {
      {},
      {kModel},
      {kModel, kShip, "--top"},
      {kModel, kShip, "--top", "0"},
      {kModel, kShip, "--top=x"},
      {kModel, kShip, "--top", "99999999999999999999"},
      {kModel, kShip, "--tpo", "3"},
      {kModel, kShip, "--size", "33"},
      {kModel, kShip, "--size", "5000"},
      {kModel, kShip, "--threads", "0"},
      {"none.safetensors", kShip},
      {kShip, kShip},
      {folder.path(), kShip},
      {kModel, "none.png"},
      {kModel, kModel},
      {kModel, folder.path()},
      {kModel, empty},
      {kModel, "bad\x1b[31mname\n.png"},
  };
  for (const Words& words : mistakes) {
    const Outcome ours = run_predict(words), plain = run_sape2(after_predict(words));
    EXPECT_EQ(ours.exit_code, plain.exit_code);
    EXPECT_NE(ours.exit_code, 0);
    EXPECT_EQ(ours.out, "");
    ASSERT_TRUE(plain.err.starts_with("sape2: ")) << plain.err;
    EXPECT_EQ(ours.err, "sape2-predict: " + plain.err.substr(std::string("sape2: ").size()));
  }
}

TEST(Predict, ABadImageDoesNotStopTheOthers) {
  const Outcome outcome = run_predict({kModel, "none.png", kShip, "--top", "1"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "sape2-predict: there is no file \"none.png\"\n");
  EXPECT_NE(outcome.out.find("ship"), std::string::npos);
}

TEST(Predict, HelpVersionAndNamesWithADash) {
  EXPECT_NE(run_predict({"--help"}).out.find("--threads N"), std::string::npos);
  EXPECT_EQ(run_predict({"--version"}).out, "sape2-predict " SAPE2_VERSION "\n");
  EXPECT_NE(run_predict({kModel, "--", "-none.png"}).err.find("there is no file \"-none.png\""),
            std::string::npos);
}

#ifndef SAPE2_SANITIZED
TEST(Predict, NeedsTheCLibraryAloneAndIsSmall) {
  const auto size = fs::file_size(SAPE2_PREDICT);
  RecordProperty("bytes", static_cast<int>(size));
  EXPECT_LE(size, 2'000'000u);
  const Outcome needed = run_program("/usr/bin/env", {"readelf", "--dynamic", SAPE2_PREDICT});
  ASSERT_EQ(needed.exit_code, 0) << needed.err;
  for (std::size_t at = needed.out.find("(NEEDED)"); at != std::string::npos;
       at = needed.out.find("(NEEDED)", at + 1)) {
    const std::string line = needed.out.substr(at, needed.out.find('\n', at) - at);
    const bool of_c = line.find("[libc.so") != std::string::npos ||
                      line.find("[libm.so") != std::string::npos ||
                      line.find("[ld-linux") != std::string::npos;
    EXPECT_TRUE(of_c) << line;
  }
}

// A figure to look at: machines are too different for a limit that means something.
TEST(Predict, StartsQuickly) {
  std::vector<double> times;
  for (int i = 0; i < 7; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(run_predict({kModel, kShip, "--threads", "1"}).exit_code, 0);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    times.push_back(time.count());
  }
  std::ranges::sort(times);
  RecordProperty("start_up_ms", std::to_string(times[3]));
  std::printf("from start to answer: %.1f ms (median of 7)\n", times[3]);
}
#endif

}  // namespace
}  // namespace sape2::predict::test
