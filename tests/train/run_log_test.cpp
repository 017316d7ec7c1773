#include "sape2/train/run_log.h"

#include "support/error_text.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

namespace sape2::train {
namespace {

using namespace sape2::testing;

EpochRecord epoch() {
  return {.epoch = 1,
          .step = 8,
          .train_loss = 2.5,
          .test = TestRecord{2.25, {{"top1", 0.5}, {"top5", 0.75}}}};
}

RunHistory read_back(const std::string& log) {
  const ScratchFolder folder;
  std::ofstream(folder / "log.jsonl") << log;
  return read_log(folder / "log.jsonl");
}

TEST(RunLog, ComesBack) {
  const auto history =
      read_back(to_json_line({.epoch = 1, .step = 4, .loss = 2}) + to_json_line(epoch()));
  ASSERT_EQ(history.steps.size(), 1u);
  ASSERT_EQ(history.epochs.size(), 1u);
  EXPECT_EQ(figure_of(history.epochs[0].test->figures, "top1"), 0.5);
}

// What no training writes is no line of the log: an accuracy of 50 is none, nor is epoch 1e300.
TEST(RunLog, OtherLinesAreLeftOut) {
  const std::string line = to_json_line(epoch());
  const auto changed = [&](const std::string& old, const std::string& now) {
    std::string text = line;
    text.replace(text.find(old), old.size(), now);
    return text;
  };
  for (const std::string& odd :
       {changed("0.5", "50"), changed("0.5", "-0.5"), changed("0.5", "true"),
        changed(":1,", ":-1,"), changed(":1,", ":1e300,"), changed(":1,", ":99999999999,"),
        changed("2.5", "null"), std::string("[]\n"), std::string("\0\n", 2),
        std::string(100'000, '[') + "\n"}) {
    EXPECT_EQ(read_back(odd + line).epochs.size(), 1u) << odd.substr(0, 200);
  }
}

TEST(RunLog, APipeIsNotWaitedFor) {
  const ScratchFolder folder;
  ASSERT_EQ(::mkfifo((folder / "log.jsonl").c_str(), 0600), 0);
  expect_contains(error_text([&] { read_log(folder / "log.jsonl"); }), "cannot read the log");
}

}  // namespace
}  // namespace sape2::train
