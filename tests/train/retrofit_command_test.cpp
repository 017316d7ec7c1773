// `sape2 train --init` and `sape2 compare --init` as a user runs them.
#include "sape2/io/checksum.h"
#include "sape2/train/run_log.h"

#include "cli/run_sape2.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"
#include "train/support.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace sape2::train::test {
namespace {

namespace fs = std::filesystem;
using cli::test::Arguments;
using cli::test::expect_mistake;
using cli::test::run_sape2;
using cli::test::with;
using namespace sape2::testing;

// Of a command that trains on very little.
Arguments on_shapes(const std::string& command) {
  return {command, "--threads",     "1",  "--data",   "shapes", "--train-images",
          "64",    "--test-images", "40", "--epochs", "1",      "--batch-size",
          "32"};
}

// A model with learnt vectors, trained once for all tests.
const fs::path& trained() {
  static const ScratchFolder scratch;
  static const fs::path model = [] {
    const auto outcome = run_sape2(with(on_shapes("train"), {"--model", "vit-micro", "--encoding",
                                                             "ape", "--out", scratch / "ape"}));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return scratch / "ape/last.safetensors";
  }();
  return model;
}

Arguments adapt(const Arguments& more) {
  return with(on_shapes("train"), with({"--init", trained().native()}, more));
}

nlohmann::json json_of(const fs::path& file) {
  return nlohmann::json::parse(file_bytes(file));
}

TEST(RetrofitCommand, AddsTheEncodingAndSaysWhatBecameOfTheModel) {
  const ScratchFolder scratch;
  const auto outcome = run_sape2(adapt({"--encoding", "sape2-k+ape", "--out", scratch / "run"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_contains(outcome.out, "is added as sape2-k[gain=0,gain-mode=learnable]+ape");
  expect_contains(outcome.out, "the model computes what it did before");
  expect_contains(outcome.out, "epoch 0  before training");

  const auto config = json_of(scratch / "run/config.json");
  EXPECT_EQ(config["model"]["encoding"], "sape2-k[gain=0,gain-mode=learnable]+ape");
  EXPECT_EQ(config["init"], trained().native());
  EXPECT_EQ(config["init_checksum"], io::content_checksum(trained()));
  const auto before = read_log(trained().parent_path() / "log.jsonl");
  const auto after = read_log(scratch / "run/log.jsonl");
  ASSERT_TRUE(after.start);
  EXPECT_EQ(after.start->figures, before.epochs.back().test->figures);
  EXPECT_NEAR(after.start->loss, before.epochs.back().test->loss, 1e-5);
}

TEST(RetrofitCommand, SaysWhatIsNewAndWhatChanges) {
  const ScratchFolder scratch;
  const auto dropped = run_sape2(adapt({"--encoding", "sape2-rel-k", "--out", scratch / "run"}));
  ASSERT_EQ(dropped.exit_code, 0) << dropped.err;
  expect_contains(dropped.out,
                  "does not compute what it did before: the learnt vectors of ape are");
  const auto larger = run_sape2(adapt({"--image-size", "48", "--out", scratch / "larger"}));
  ASSERT_EQ(larger.exit_code, 0) << larger.err;
  expect_contains(larger.out, "the model computes what it did before");
}

TEST(RetrofitCommand, MistakesAreOneSentenceAndLeaveNothing) {
  const ScratchFolder scratch;
  const auto refused = [&](const Arguments& arguments, const std::string& part) {
    expect_mistake(run_sape2(with(arguments, {"--out", scratch / "run"})), 1, part);
    EXPECT_FALSE(fs::exists(scratch / "run")) << part;
  };
  for (const std::string command : {"train", "compare"}) {
    const Arguments encoding = command == "train" ? Arguments{"--encoding", "sape2-rel-k+ape"}
                                                  : Arguments{"--encodings", "sape2-rel-k+ape"};
    const auto from = [&](const fs::path& file, const Arguments& more = {}) {
      return with(with(on_shapes(command), encoding), with({"--init", file.native()}, more));
    };
    refused(from("/no/such.safetensors"), "/no/such.safetensors");
    const fs::path damaged = scratch / "damaged.safetensors";
    std::string bytes = file_bytes(trained());
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_bytes(damaged, bytes);
    refused(from(damaged), "was damaged or changed");
    write_bytes(damaged, bytes.substr(0, bytes.size() / 2));
    refused(from(damaged), "damaged.safetensors");
    write_bytes(damaged, "no model at all");
    refused(from(damaged), "damaged.safetensors");
    refused(from(trained(), {"--depth", "9"}), "leave the flags of the model's size out");
    refused(from(trained(), {"--model", "vit-small"}), "was asked for");
  }
  refused(adapt({"--encoding", "sape3"}), "sape3");
}

// It once began again from scratch, without a word.
TEST(RetrofitCommand, ARunThatLostTheFileItStartsFromIsRefused) {
  const ScratchFolder scratch;
  const fs::path run = scratch / "run";
  ASSERT_EQ(run_sape2(adapt({"--out", run})).exit_code, 0);
  auto config = json_of(run / "config.json");
  config["init"] = "";
  write_bytes(run / "config.json", config.dump());
  const std::string log = file_bytes(run / "log.jsonl");
  for (const Arguments& more : {Arguments{}, Arguments{"--restart"}}) {
    expect_mistake(run_sape2(with({"train", "--resume", run}, more)), 1,
                   "init is empty, but init_checksum is there");
    EXPECT_EQ(file_bytes(run / "log.jsonl"), log);
  }
}

TEST(RetrofitCommand, ComparesFromATrainedModel) {
  const ScratchFolder scratch;
  const Arguments compare =
      with(on_shapes("compare"), {"--init", trained().native(), "--encodings", "ape,sape2-k+ape",
                                  "--baseline", "ape", "--out", scratch / "out"});
  const auto outcome = run_sape2(compare);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_contains(outcome.out, "Every run starts from last.safetensors.");
  expect_contains(outcome.out, "before training %");
  const auto results = json_of(scratch / "out/results.json");
  ASSERT_EQ(results["rows"].size(), 2u);
  EXPECT_EQ(results["rows"][1]["encoding"], "sape2-k[gain=0,gain-mode=learnable]+ape");
  // Both start from one function.
  EXPECT_EQ(results["rows"][0]["runs"][0]["start"]["top-1"],
            results["rows"][1]["runs"][0]["start"]["top-1"]);
  const auto again =
      run_sape2({"compare", "--from", scratch / "out/results.json", "--out", scratch / "again"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(file_bytes(scratch / "again/table.md"), file_bytes(scratch / "out/table.md"));
  expect_mistake(
      run_sape2(with(on_shapes("compare"),
                     {"--init", trained().native(), "--encodings",
                      "sape2-k,sape2-k[gain=0,gain-mode=learnable]", "--out", scratch / "twice"})),
      1, "two rows are sape2-k[gain=0,gain-mode=learnable]");
}

}  // namespace
}  // namespace sape2::train::test
