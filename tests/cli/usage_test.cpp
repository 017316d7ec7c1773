#include "sape2/version.h"

#include "cli/run_sape2.h"

#include <gtest/gtest.h>

namespace sape2::cli::test {
namespace {

TEST(Usage, VersionAndHelp) {
  const Outcome version = run_sape2({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out, "sape2 " SAPE2_VERSION "\n");
  EXPECT_EQ(version.err, "");

  const Outcome help = run_sape2({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* part : {"info", "--threads", "--version"}) {
    EXPECT_NE(help.out.find(part), std::string::npos) << part;
  }
  const Outcome command_help = run_sape2({"info", "--help"});
  EXPECT_EQ(command_help.exit_code, 0);
  EXPECT_NE(command_help.out.find("--json"), std::string::npos);
}

TEST(Usage, EachMistakeGetsOneSentenceAndExitCodeTwo) {
  expect_mistake(run_sape2({}), 2, "no command is given");
  expect_mistake(run_sape2({"inof"}), 2, "command \"inof\" is not known; the nearest is \"info\"");
  expect_mistake(run_sape2({"--jsn", "info"}), 2, "option \"--jsn\" is not known");
  expect_mistake(run_sape2({"bench", "train", "--round", "3"}), 2,
                 "option \"--round\" is not known; the nearest is \"--rounds\"");
  expect_mistake(run_sape2({"info", "--jsn"}), 2, "the nearest is \"--json\"");
  expect_mistake(run_sape2({"info", "a", "b"}), 2, "info has no use for the argument \"b\"");
  expect_mistake(run_sape2({"--threads", "0", "info"}), 2,
                 "--threads: \"0\" is not a whole number from 1 to 1024");
  expect_mistake(run_sape2({"info", "--threads", "2x"}), 2, "\"2x\" is not a whole number");
  expect_mistake(run_sape2({"info", "--threads", "99999999999999999999"}), 2, "not a whole number");
  expect_mistake(run_sape2({"info", "--threads"}), 2, "--threads");
  // `--init "$MODEL"` of a shell where MODEL is not set: not a run from scratch.
  for (const char* option : {"--init", "--resume", "--out", "--encoding"}) {
    expect_mistake(run_sape2({"train", "--data", "none", option, ""}), 2,
                   std::string(option) + " is given, but its value is an empty text");
  }
  expect_mistake(run_sape2({"info", ""}), 2, "model is given, but its value is an empty text");
}

TEST(Usage, ColoursOnlyOnATerminalThatWantsThem) {
  if (!has_terminals()) GTEST_SKIP() << "there are no pseudo-terminals here";
  const Environment terminal = {{"TERM", "xterm"}, {"NO_COLOR", ""}};
  EXPECT_NE(run_sape2_on_terminal({"info"}, terminal).out.find("\x1b["), std::string::npos);
  EXPECT_EQ(run_sape2({"info"}, terminal).out.find('\x1b'), std::string::npos);
  for (const Environment& plain :
       {Environment{{"TERM", "xterm"}, {"NO_COLOR", "1"}}, Environment{{"TERM", "dumb"}}}) {
    EXPECT_EQ(run_sape2_on_terminal({"info"}, plain).out.find('\x1b'), std::string::npos);
  }
}

// GNU OpenMP shows on request what it has read.
TEST(Usage, IdleThreadsSleepUnlessTheUserWishesOtherwise) {
  const auto shown = [](const Environment& variables) {
    return run_sape2({"--version"}, variables).err;
  };
  const std::string by_default = shown({{"OMP_DISPLAY_ENV", "verbose"}, {"OMP_WAIT_POLICY", ""}});
  if (by_default.find("GOMP_SPINCOUNT") == std::string::npos) {
    GTEST_SKIP() << "this OpenMP library does not show its settings";
  }
  // It shows the policy PASSIVE with none set too; the count of turns tells them apart.
  EXPECT_NE(by_default.find("GOMP_SPINCOUNT = '0'"), std::string::npos) << by_default;
  const std::string by_user =
      shown({{"OMP_DISPLAY_ENV", "verbose"}, {"OMP_WAIT_POLICY", "ACTIVE"}});
  EXPECT_NE(by_user.find("OMP_WAIT_POLICY = 'ACTIVE'"), std::string::npos) << by_user;
}

}  // namespace
}  // namespace sape2::cli::test
