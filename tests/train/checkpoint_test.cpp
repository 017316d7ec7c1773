#include "train/checkpoint.h"

#include "sape2/io/checksum.h"

#include "support/error_text.h"
#include "support/scratch_folder.h"
#include "train/support.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace sape2::train::test {
namespace {

using namespace sape2::testing;

io::NamedTensors some_tensors(double offset) {
  return {{"a", at::arange(12, at::kFloat).view({3, 4}) + offset},
          {"b.c", at::full({}, offset)},
          {"empty", at::empty({0}, at::kFloat)}};
}

const Progress kProgress{.step = 41,
                         .epoch_loss = 0.1 + 0.2,
                         .interval_loss = 1e-300,
                         .best = 1.0 / 3,
                         .seconds = 12.25};

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override { write_checkpoint(file(), some_tensors(5), kProgress, "run one"); }

  std::filesystem::path file() const { return folder_ / "step-000000041.safetensors"; }

  std::string refusal() const {
    io::NamedTensors tensors = some_tensors(0);
    const std::string text = error_text([&] { read_checkpoint(file(), tensors, "run one"); });
    EXPECT_TRUE(at::equal(tensors.at("a"), some_tensors(0).at("a"))) << "changed all the same";
    expect_contains(text, "step-000000041");
    return text;
  }

  ScratchFolder folder_;
};

TEST_F(CheckpointTest, ComesBackExactly) {
  io::NamedTensors tensors = some_tensors(0);
  EXPECT_EQ(read_checkpoint(file(), tensors, "run one"), kProgress);
  for (const auto& [name, tensor] : some_tensors(5)) EXPECT_TRUE(at::equal(tensor, tensors[name]));
}

TEST_F(CheckpointTest, EveryTruncationIsRefused) {
  const std::string whole = file_bytes(file());
  for (size_t length = 0; length < whole.size(); length += 7) {
    write_bytes(file(), whole.substr(0, length));
    refusal();
  }
}

TEST_F(CheckpointTest, EveryFlippedByteIsRefused) {
  const std::string whole = file_bytes(file());
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    write_bytes(file(), changed);
    refusal();
  }
}

TEST_F(CheckpointTest, ThoseOfOtherRunsAreRefused) {
  write_checkpoint(file(), some_tensors(5), kProgress, "run two");
  expect_contains(refusal(), "another configuration");
}

TEST_F(CheckpointTest, OnlyDamageIsCalledDamage) {
  io::NamedTensors tensors = some_tensors(0);
  EXPECT_THROW(
      {
        try {
          read_checkpoint(file(), tensors, "run two");
        } catch (const DamagedCheckpoint&) {
          FAIL() << "another configuration is no damage";
        }
      },
      Error);
  EXPECT_THROW(
      {
        try {
          read_checkpoint(folder_ / "absent", tensors, "run one");
        } catch (const DamagedCheckpoint&) {
          FAIL() << "what cannot be read may be whole";
        }
      },
      Error);
  write_bytes(file(), file_bytes(file()) + "x");
  EXPECT_THROW(read_checkpoint(file(), tensors, "run one"), DamagedCheckpoint);
}

TEST_F(CheckpointTest, ThoseOfOlderVersionsAreRead) {
  const auto original = io::SafetensorsFile::open(file());
  io::Metadata metadata = original.metadata();
  metadata.erase(io::kChecksumKey);
  const std::string checksum = io::checksum_of(metadata, original.tensors());
  metadata["checksum"] = checksum;
  io::write_safetensors(file(), original.tensors(), metadata);
  io::NamedTensors tensors = some_tensors(0);
  EXPECT_EQ(read_checkpoint(file(), tensors, "run one"), kProgress);
  metadata["checksum"] = "crc32c:00000000";
  io::write_safetensors(file(), original.tensors(), metadata);
  EXPECT_THROW(read_checkpoint(file(), tensors, "run one"), DamagedCheckpoint);
}

TEST_F(CheckpointTest, OtherSafetensorsFilesAreRefused) {
  io::save_tensors(file(), some_tensors(5));
  expect_contains(refusal(), "no checkpoint");
}

TEST_F(CheckpointTest, OtherTensorsAreRefused) {
  io::NamedTensors more = some_tensors(5);
  more.emplace("z", at::zeros({1}));
  write_checkpoint(file(), more, kProgress, "run one");
  expect_contains(refusal(), "more tensors");
  io::NamedTensors other = some_tensors(5);
  other["a"] = at::zeros({4, 3});
  write_checkpoint(file(), other, kProgress, "run one");
  expect_contains(refusal(), "\"a\"");
}

}  // namespace
}  // namespace sape2::train::test
