#include "cli/run_sape2.h"
#include "support/gpu.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <fstream>

namespace sape2::cli::test {
namespace {

using nlohmann::json;
using namespace sape2::testing;

/// A benchmark of attention that takes next to no time.
std::vector<std::string> tiny_benchmark(std::vector<std::string> more) {
  more.insert(more.begin(), {"bench", "attention", "--shapes", "2x3:1x2", "--head-size", "8",
                             "--no-reference", "--repetitions", "1"});
  return more;
}

json rows_written_by(const std::vector<std::string>& more) {
  const ScratchFolder folder;
  const std::string file = folder.path() / "rows.json";
  auto arguments = tiny_benchmark(more);
  arguments.insert(arguments.end(), {"--json", file});
  const Outcome outcome = run_sape2(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return json::parse(std::ifstream(file));
}

TEST(BenchAttention, WritesARowForEachCase) {
  const json rows = rows_written_by({"--encodings", "sape2-k,sape2-rel-k"});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1]["encoding"], "sape2-rel-k");
  EXPECT_EQ(rows[0]["dtype"], "float32");
  EXPECT_GT(rows[0]["fused_ms"].get<double>(), 0);
  EXPECT_GT(rows[0]["plain_ms"].get<double>(), 0);
}

// The runtime's memory is that of a process without LibTorch, although this program has it loaded.
TEST(BenchInfer, MeasuresEachInAProcessOfItsOwn) {
  const ScratchFolder folder;
  const std::string file = folder.path() / "infer.json";
  const Outcome outcome = run_sape2(
      {"bench", "infer", "--models", "vit-compact:16/4", "--rounds", "1", "--json", file});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("product floor"), std::string::npos) << outcome.out;
  const json report = json::parse(std::ifstream(file));
  ASSERT_EQ(report.size(), 1u);
  const json contestants = report[0]["contestants"];
  const json runtime = contestants.front(), libtorch = contestants.back();
  EXPECT_EQ(runtime["name"], "runtime");
  EXPECT_EQ(libtorch["name"], "sape2 predict, on LibTorch");
  EXPECT_LT(libtorch["difference"].get<double>(), 1e-5);
  EXPECT_GT(runtime["start_ms"].get<double>(), 0);
  EXPECT_LT(runtime["bytes_on_disk"].get<double>(), 2e6);
  EXPECT_GT(report[0]["product_floor_ms"].get<double>(), 0);
  EXPECT_LT(report[0]["product_floor_ms"].get<double>(), runtime["batch_1_ms"].get<double>());
  if (!runtime.contains("peak_bytes")) GTEST_SKIP() << "processes may not be watched here (ptrace)";
  EXPECT_LT(runtime["peak_bytes"].get<double>(), 64e6);
  EXPECT_GT(libtorch["peak_bytes"].get<double>(), 2 * runtime["peak_bytes"].get<double>());
}

TEST(BenchInfer, AnswersMistakesWithASentence) {
  expect_mistake(run_sape2({"bench", "infer", "--models", "vit-compact:16by4"}), 1,
                 "PRESET:SIZE/PATCH");
  expect_mistake(
      run_sape2({"bench", "infer", "--models", "vit-compact:16/4", "--peers", "no-such-program"}),
      1, "no-such-program");
}

TEST(BenchAttention, ExplainsWhichKernelsRunWithoutAGpu) {
  const Outcome outcome = run_sape2({"bench", "attention", "--explain", "sm_90", "--encodings",
                                     "sape2-k,sape2-rel-k,rpe-decomposed,cope,none", "--shapes",
                                     "14x14:128x6,64x64:1x6"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* kernel :
       {"backward_saved_kernel for 14×14", "attention_sm90/distance/backward.cuh",
        "attention_sm90/direct/bwd_dkdv.cuh", "not attention_head: it takes grids of up to 16",
        "cope/backward.cuh"})
    EXPECT_NE(outcome.out.find(kernel), std::string::npos) << kernel << "\n" << outcome.out;

  const Outcome unknown = run_sape2({"bench", "attention", "--explain", "sm_13"});
  EXPECT_NE(unknown.exit_code, 0);
  EXPECT_NE(unknown.err.find("sm_13"), std::string::npos) << unknown.err;
}

double seconds_of(const std::vector<std::string>& command) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = run_sape2(command);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A round takes microseconds; an unhurried benchmark goes on for 3 seconds in each of two
// processes. Other programs may hold one of the two up, hence a few tries.
TEST(BenchAttention, EndsInTheTimeItIsGiven) {
  double hurried = 0, usual = 0;
  for (int tries = 0; tries < 4 && hurried + 1.5 >= usual; ++tries) {
    hurried = seconds_of(tiny_benchmark({"--encodings", "sape2-k", "--seconds", "0.1"}));
    usual = seconds_of(tiny_benchmark({"--encodings", "sape2-k"}));
  }
  EXPECT_LT(hurried + 1.5, usual);
  const Outcome outcome = run_sape2(tiny_benchmark({"--encodings", "sape2-k", "--seconds", "0.1"}));
  EXPECT_EQ(outcome.out.find("reference"), std::string::npos) << outcome.out;
  expect_mistake(run_sape2(tiny_benchmark({"--seconds", "0"})), 2, "--seconds");
}

TEST(BenchAttention, MistakesGetOneSentence) {
  expect_mistake(run_sape2(tiny_benchmark({"--device", "gpu"})), 1,
                 "device \"gpu\" is not known; valid are cpu, cuda and cuda:N");
  expect_mistake(run_sape2(tiny_benchmark({"--dtypes", "float16"})), 1,
                 "--dtypes float16 is not supported on the CPU; use bfloat16 or float32");
  expect_mistake(run_sape2(tiny_benchmark({"--dtypes", "float8"})), 2, "float8");
  expect_mistake(run_sape2({"bench", "attention", "--shapes", "8by8"}), 1,
                 "shape \"8by8\" is not understood");
}

TEST(BenchAttention, AGpuThatIsNotThereIsSaidSo) {
  if (sape2::test::has_gpu()) GTEST_SKIP() << "there is a GPU here";
  expect_mistake(run_sape2(tiny_benchmark({"--device", "cuda"})), 1,
                 "device is \"cuda\", but LibTorch finds no CUDA GPU here; use --device cpu");
}

TEST(BenchAttention, MeasuresOnAGpu) {
  SAPE2_NEEDS_GPU();
  const json rows = rows_written_by(
      {"--device", "cuda", "--encodings", "sape2-k", "--dtypes", "bfloat16,float16,float32"});
  ASSERT_EQ(rows.size(), 3u);
  for (const json& row : rows) {
    EXPECT_GT(row["fused"]["ms"].get<double>(), 0);
    EXPECT_GT(row["plain"]["ms"].get<double>(), 0);
    EXPECT_GT(row["share_of_ceilings"].get<double>(), 0);
  }
}

TEST(BenchAttention, HelpNamesTheDefaultsOfBothDevices) {
  const Outcome help = run_sape2({"bench", "attention", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* part : {"--device", "float16", "8x8:32x6", "8x8:128x6"})
    EXPECT_NE(help.out.find(part), std::string::npos) << part;
}

}  // namespace
}  // namespace sape2::cli::test
