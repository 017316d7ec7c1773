#include "sape2/components.h"
#include "sape2/data/image.h"
#include "sape2/io/model_file.h"
#include "sape2/io/safetensors.h"
#include "sape2/nn/vit.h"

#include "cli/run_sape2.h"
#include "io/raw_file.h"
#include "support/file_bytes.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>

namespace sape2::cli::test {
namespace {

using namespace sape2::testing;

std::string save_model(const ScratchFolder& folder, const std::string& name,
                       const std::string& encoding) {
  nn::ModelConfig config;
  config.vit.depth = 2;
  config.vit.width = 16;
  config.vit.heads = 2;
  config.encoding = nn::EncodingSpec::parse(encoding);
  io::save_model(folder / name, nn::ViT(config));
  return (folder / name).native();
}

std::string begin_of(const std::filesystem::path& file) {
  return file_bytes(file).substr(0, 4);
}

TEST(Explain, DrawsFilesAndDataSetImagesInEveryFormat) {
  if (!SAPE2_HAVE_DRAWING || !SAPE2_HAVE_IMAGES) GTEST_SKIP() << "this build cannot draw";
  const ScratchFolder folder;
  const std::string model = save_model(folder, "a.safetensors", "sape2-k+ape");
  const std::string other = save_model(folder, "b.safetensors", "sape2-rel-k");
  data::write_png(folder / "wide.png", {40, 100, 3, std::vector<std::uint8_t>(12000, 90)});
  const std::string wide = (folder / "wide.png").native();
  const Outcome first = run_sape2({"explain", model, wide, "shapes:test:3", "-o",
                                   (folder / "f.png").native(), "--compare", other});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(begin_of(folder / "f.png"), "\x89PNG");
  const Outcome second = run_sape2({"explain", model, wide, "--what", "positions", "--patch", "1,2",
                                    "-o", (folder / "f.svg").native()});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_NE(file_bytes(folder / "f.svg").find("<svg"), std::string::npos);
  const Outcome third =
      run_sape2({"explain", model, "shapes:test:0-5", "--grid", "--what", "attention", "--layer",
                 "2", "--head", "1", "-o", (folder / "f.pdf").native()});
  EXPECT_EQ(third.exit_code, 0) << third.err;
  EXPECT_EQ(begin_of(folder / "f.pdf"), "%PDF");
}

TEST(Explain, WritesTheNumbers) {
  const ScratchFolder folder;
  const std::string model = save_model(folder, "a.safetensors", "sape2-k");
  const std::string numbers = (folder / "n.safetensors").native();
  const Outcome outcome =
      run_sape2({"explain", model, "shapes:test:1", "--patch", "0,0", "--patch", "7,7",
                 "--safetensors", numbers, "--npz", (folder / "n.npz").native()});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto file = io::SafetensorsFile::open(numbers);
  EXPECT_EQ(file.at("maps").shape, (std::vector<std::int64_t>{2, 8, 8}));
  EXPECT_EQ(file.at("matrix").shape, (std::vector<std::int64_t>{64, 64}));
  EXPECT_TRUE(file_bytes(folder / "n.npz").starts_with("PK"));
}

TEST(Explain, NamesMistakes) {
  const ScratchFolder folder;
  const std::string model = save_model(folder, "a.safetensors", "rope2d");
  const std::string out = (folder / "f.png").native();
  expect_mistake(run_sape2({"explain", model, "shapes:test:1"}), 1, "-o FILE.png");
  expect_mistake(run_sape2({"explain", model, "shapes:test:1", "-o", "f.gif"}), 1, ".svg or .pdf");
  expect_mistake(run_sape2({"explain", model, "shapes:test:1", "-o", out}), 1,
                 "the encoding rope2d has no bias");
  expect_mistake(run_sape2({"explain", model, "shapes:test:1", "--what", "attention", "--layer",
                            "9", "-o", out}),
                 1, "no layer 9");
  expect_mistake(run_sape2({"explain", model, "shapes:test:1", "--what", "attention", "--patch",
                            "8,0", "-o", out}),
                 1, "no patch 8,0");
  expect_mistake(run_sape2({"explain", model, "nothing.png", "-o", out}), 1, "nothing.png");
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(Serve, StatesItsLimitsAndNamesMistakes) {
  const Outcome help = run_sape2({"serve", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* limit : {"8 MiB", "64 million pixels", "4096", "256 connections", "10 s"}) {
    EXPECT_NE(help.out.find(limit), std::string::npos) << limit;
  }
  expect_mistake(run_sape2({"serve", "nowhere.safetensors"}), 1,
                 SAPE2_HAVE_SERVER ? "nowhere.safetensors" : "libcpp-httplib-dev");
}

}  // namespace
}  // namespace sape2::cli::test
