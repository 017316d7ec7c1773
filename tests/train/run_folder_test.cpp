#include "sape2/train/run_folder.h"

#include "support/error_text.h"
#include "support/scratch_folder.h"
#include "train/support.h"

#include <gtest/gtest.h>

namespace sape2::train::test {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;

TEST(RunFolder, IsNeverOverwritten) {
  const ScratchFolder scratch;
  { RunFolder::create(scratch / "run", tiny_run()); }
  expect_contains(error_text([&] { RunFolder::create(scratch / "run", tiny_run()); }), "--resume");
  for (const char* name : {"log.jsonl", "last.safetensors", "checkpoints/step-1.safetensors"}) {
    const fs::path folder = scratch / fs::path(name).filename().native();
    fs::create_directories(folder / "checkpoints");
    write_bytes(folder / name, "x");
    expect_contains(error_text([&] { RunFolder::create(folder, tiny_run()); }), "files of a run");
    EXPECT_FALSE(fs::exists(folder / "config.json"));
  }
}

TEST(RunFolder, BelongsToOneProcessAtATime) {
  const ScratchFolder scratch;
  const RunFolder held = RunFolder::create(scratch / "run", tiny_run());
  expect_contains(error_text([&] { RunFolder::open(scratch / "run"); }), "another process");
}

TEST(RunFolder, MustBeOne) {
  const ScratchFolder scratch;
  expect_contains(error_text([&] { RunFolder::open(scratch.path()); }), "config.json");
  expect_contains(error_text([&] { RunFolder::open(scratch / "absent"); }), "absent");
  write_bytes(scratch / "file", "x");
  expect_contains(error_text([&] { RunFolder::create(scratch / "file", tiny_run()); }), "file");
}

}  // namespace
}  // namespace sape2::train::test
