#include "sape2/io/checksum.h"
#include "sape2/io/tensor_file.h"
#include "sape2/nn/encoding_spec.h"
#include "sape2/train/run_folder.h"

#include "support/error_text.h"
#include "support/scratch_folder.h"
#include "train/session.h"
#include "train/support.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

namespace sape2::train::test {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;

TEST(Trainer, StartsFromAModelFile) {
  const ScratchFolder scratch;
  RunConfig config = tiny_run();
  config.model.encoding = nn::EncodingSpec::parse("ape");
  config.recipe.epochs = 8;
  const Session first = train(scratch / "first", config);
  const double reached = main_figure(first.summary.last->test->figures);

  config.init = (scratch / "first/last.safetensors").native();
  config.init_checksum = io::content_checksum(config.init);
  config.model.encoding = nn::EncodingSpec::parse("sape2-rel-k+ape");
  config.recipe.epochs = 1;
  const Session second = train(scratch / "second", config);
  const RunHistory history = read_log(scratch / "second/log.jsonl");
  ASSERT_TRUE(history.start);
  EXPECT_EQ(main_figure(history.start->figures), reached);
  EXPECT_EQ(main_figure(second.recorder.started->figures), reached);
  EXPECT_GE(second.summary.best, reached);
  ASSERT_FALSE(second.recorder.notes.empty());
  expect_contains(second.recorder.notes.front(), "last.safetensors (ape)");
  expect_contains(second.recorder.notes.back(), "the model computes what it did before");

  config.model.encoding = nn::EncodingSpec::parse("sape2-rel-k");
  const Session dropped = train(scratch / "dropped", config);
  expect_contains(dropped.recorder.notes.back(), "the learnt vectors of ape are dropped");
  config.model.encoding = nn::EncodingSpec::parse("rope2d+ape");
  expect_contains(train(scratch / "turned", config).recorder.notes.back(), "acts from the start");
}

TEST(Trainer, NeedsTheFileItStartedFromOnlyOnce) {
  const ScratchFolder scratch;
  RunConfig config = tiny_run();
  config.recipe.epochs = 1;
  train(scratch / "first", config);
  fs::copy(scratch / "first/last.safetensors", scratch / "model.safetensors");
  config.init = (scratch / "model.safetensors").native();
  config.init_checksum = io::content_checksum(config.init);
  train(scratch / "whole", config);
  EXPECT_EQ(train(scratch / "run", config, /*stop_after=*/1).summary.step, 1);
  fs::remove(config.init);
  EXPECT_TRUE(train(scratch / "run", config).summary.finished);
  expect_same_result(scratch / "whole", scratch / "run");
  EXPECT_TRUE(read_log(scratch / "run/log.jsonl").start);

  // A run that begins again does need it, and no other.
  RunFolder::open(scratch / "run").restart();
  expect_contains(error_text([&] { train(scratch / "run", config); }), "model.safetensors");
  RunConfig other = tiny_run();
  other.seed = 8;
  other.recipe.epochs = 1;
  train(scratch / "second", other);
  fs::copy(scratch / "second/last.safetensors", config.init);
  expect_contains(error_text([&] { train(scratch / "run", config); }),
                  "is not the file that this run was begun with");
  config.init_checksum = std::string(100'000, 'x');
  EXPECT_LT(error_text([&] { train(scratch / "third", config); }).size(), 1000u);
}

TEST(Trainer, RefusesToStartFromWhatIsNoModel) {
  const ScratchFolder scratch;
  RunConfig config = tiny_run();
  config.recipe.epochs = 1;
  train(scratch / "first", config);
  const auto refused = [&](const fs::path& run) {
    return error_text([&] { train(scratch / run.native(), config); });
  };
  config.init = (scratch / "nothing.safetensors").native();
  expect_contains(refused("second"), "nothing.safetensors");
  config.init = (scratch / "nan.safetensors").native();
  auto weights = io::load_tensors(scratch / "first/last.safetensors");
  weights.at("head.bias")[0] = std::numeric_limits<float>::quiet_NaN();
  io::save_tensors(config.init, weights);
  EXPECT_NE(refused("third"), "");
  config.init = (scratch / "first/last.safetensors").native();
  config.model.vit.depth = 3;
  expect_contains(refused("fourth"), "the trained model has depth 2, but a model with depth 3");
}

}  // namespace
}  // namespace sape2::train::test
