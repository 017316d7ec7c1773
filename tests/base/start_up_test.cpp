#include "sape2/base/settings.h"

#include "cli/run_sape2.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace sape2::base::test {
namespace {

using cli::test::Environment;
using cli::test::Outcome;
using cli::test::run_program;

/// Nothing set, as on a machine of a new user.
const Environment kBare = {{"OMP_WAIT_POLICY", ""},    {"GOMP_SPINCOUNT", ""},
                           {"KMP_BLOCKTIME", ""},      {"ONEDNN_MAX_CPU_ISA", ""},
                           {"DNNL_MAX_CPU_ISA", ""},   {"OPENBLAS_CORETYPE", ""},
                           {"SAPE2_SET_VARIABLES", ""}};

Environment bare_with(const Environment& variables) {
  Environment all = variables;
  all.insert(kBare.begin(), kBare.end());
  return all;
}

std::string linked(const std::string& task, const Environment& variables = {}) {
  const Outcome outcome = run_program(SAPE2_LINKED_PROGRAM, {task}, bare_with(variables));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.out;
}

nlohmann::json settings_of_the_program(const Environment& variables = {}) {
  const Outcome outcome = run_program(SAPE2_PROGRAM, {"info", "--json"}, bare_with(variables));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto info = nlohmann::json::parse(outcome.out);
  nlohmann::json settings;
  for (const auto& setting : info["settings"]) {
    settings[setting["variable"].get<std::string>()] = setting;
  }
  return settings;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Where oneDNN believes in tiles that are not there, this dies with an illegal instruction.
TEST(StartUp, AProductInBfloat16Survives) {
  linked("bfloat16");
}

TEST(StartUp, TheProgramSettlesInTime) {
  const auto settings = settings_of_the_program();
  ASSERT_TRUE(settings.contains("OMP_WAIT_POLICY"));
  EXPECT_EQ(settings["OMP_WAIT_POLICY"]["value"], "PASSIVE");
  EXPECT_EQ(settings["OMP_WAIT_POLICY"]["set_by"], "sape2");
  EXPECT_EQ(settings["OMP_WAIT_POLICY"]["in_time"], true);
  for (const Setting& setting : settings_for(read_cpu())) {
    EXPECT_TRUE(settings.contains(setting.variables.front())) << setting.variables.front();
  }
}

TEST(StartUp, AUsersSettingWins) {
  const auto own = settings_of_the_program({{"OMP_WAIT_POLICY", "ACTIVE"}});
  EXPECT_EQ(own["OMP_WAIT_POLICY"]["value"], "ACTIVE");
  EXPECT_EQ(own["OMP_WAIT_POLICY"]["set_by"], "user");

  const auto relative = settings_of_the_program({{"GOMP_SPINCOUNT", "100"}});
  EXPECT_FALSE(relative.contains("OMP_WAIT_POLICY"));
  EXPECT_EQ(relative["GOMP_SPINCOUNT"]["set_by"], "user");

  EXPECT_TRUE(has(linked("settings", {{"OMP_WAIT_POLICY", "ACTIVE"}}),
                  "OMP_WAIT_POLICY=ACTIVE by user, in time"));
  const std::string core = linked("settings", {{"OPENBLAS_CORETYPE", "Nehalem"}});
  EXPECT_TRUE(has(core, "OPENBLAS_CORETYPE=Nehalem by user, in time")) << core;
  EXPECT_TRUE(has(core, "core=Nehalem\n") || has(core, "core=\n")) << core;  // or another BLAS
}

TEST(StartUp, ALinkedProgramIsToldWhatCameTooLate) {
  EXPECT_TRUE(has(linked("settings"), "OMP_WAIT_POLICY=PASSIVE by sape2, late"));
  EXPECT_TRUE(has(linked("restart"), "OMP_WAIT_POLICY=PASSIVE by sape2, in time"));
  EXPECT_TRUE(has(linked("settings", {{"OMP_WAIT_POLICY", "PASSIVE"}}),
                  "OMP_WAIT_POLICY=PASSIVE by user, in time"));
}

// A core type that is not the user's stands for what OpenBLAS chose by mistake.
TEST(StartUp, OpenBlasLeavesKernelsItFellBackTo) {
  const std::string before = linked("settings");
  if (has(before, "core=\n")) GTEST_SKIP() << "this LibTorch does not use OpenBLAS";
  const std::string better = better_openblas_core(read_cpu(), "Prescott");
  if (better.empty()) GTEST_SKIP() << "this CPU has nothing wider";
  const Environment fallen = {{"OPENBLAS_CORETYPE", "Prescott"},
                              {"SAPE2_SET_VARIABLES", "OPENBLAS_CORETYPE"}};
  const std::string after = linked("settings", fallen);
  EXPECT_TRUE(has(after, "OPENBLAS_CORETYPE=" + better + " by sape2, in time")) << after;
  EXPECT_TRUE(has(after, "core=" + better + "\n")) << after;
  EXPECT_EQ(settings_of_the_program(fallen)["OPENBLAS_CORETYPE"]["value"], better);
}

}  // namespace
}  // namespace sape2::base::test
