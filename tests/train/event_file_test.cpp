#include "train/event_file.h"

#include "support/scratch_folder.h"
#include "train/support.h"

#include <gtest/gtest.h>

namespace sape2::train::test {
namespace {

using namespace sape2::testing;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// Messages from protoc, framed by another program with the CRC bit by bit.
TEST(EventFile, RecordsAreFramedAsTensorFlowDoes) {
  EXPECT_EQ(hex(tf_record("")), "000000000000000029039807d8ea82a2");
  EXPECT_EQ(hex(tf_record(version_event(1.5))),
            "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
  EXPECT_EQ(hex(tf_record(session_start_event(1.5, 300))),
            "100000000000000095fbfe1809000000000000f83f10ac023a020801713b788a");
  EXPECT_EQ(hex(tf_record(scalars_event(1.5, 300, {{"train/loss", 0.5}, {"a", -2}}))),
            "2b00000000000000861bc34b09000000000000f83f10ac022a1d0a110a0a747261696e2f6c6f7373"
            "150000003f0a080a016115000000c0d9a4d204");
}

TEST(EventFile, IsWrittenAsItGrows) {
  const ScratchFolder folder;
  EventFile events(folder.path(), 0);
  events.add(1, {{"x", 1}});
  const auto file = *std::filesystem::directory_iterator(folder.path());
  EXPECT_NE(file.path().filename().native().find("tfevents"), std::string::npos);
  const std::string bytes = file_bytes(file);
  const std::string version = tf_record(version_event(0));
  const std::string start = tf_record(session_start_event(0, 0));
  const std::string scalar = tf_record(scalars_event(0, 1, {{"x", 1}}));
  EXPECT_EQ(bytes.size(), version.size() + start.size() + scalar.size());
}

}  // namespace
}  // namespace sape2::train::test
