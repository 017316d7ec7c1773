#include "train/session.h"

#include "train/support.h"

#include <gtest/gtest.h>

namespace sape2::train::test {
namespace fs = std::filesystem;

Session train(const fs::path& path, const RunConfig& config, int64_t stop_after,
              int64_t poison_from) {
  Session session;
  ShuffledSource source(corners(kTrainImages, 1), config.recipe.batch_size, config.seed);
  if (poison_from >= 0) source.poison_from(poison_from);
  const data::Dataset test = corners(kTestImages, 2);
  RunFolder folder =
      fs::exists(path / "config.json") ? RunFolder::open(path) : RunFolder::create(path, config);
  Trainer trainer(std::move(folder), source, test, session.recorder);
  int64_t done = 0;
  session.summary = trainer.run([&] { return ++done == stop_after; });
  return session;
}

std::string comparable_log(const fs::path& path) {
  std::string text;
  const RunHistory history = read_log(path / "log.jsonl");
  for (StepRecord record : history.steps) {
    record.seconds = record.images_per_second = 0;
    text += to_json_line(record);
  }
  for (EpochRecord record : history.epochs) {
    record.seconds = 0;
    text += to_json_line(record);
  }
  return text;
}

void expect_same_result(const fs::path& one, const fs::path& other) {
  for (const char* name : {"last.safetensors", "best.safetensors"}) {
    EXPECT_TRUE(file_bytes(one / name) == file_bytes(other / name)) << name << " differs";
  }
  EXPECT_EQ(comparable_log(one), comparable_log(other));
}

}  // namespace sape2::train::test
