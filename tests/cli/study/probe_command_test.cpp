#include "cli/run_sape2.h"
#include "cli/small_model.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace sape2::cli::test {
namespace {

using nlohmann::json;
using namespace sape2::testing;

TEST(Probe, PrintsEveryProbe) {
  const ScratchFolder folder;
  const std::string model = save_model(folder);
  const Outcome outcome = run_sape2({"probe", model, "--images", "40", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  ASSERT_EQ(result.size(), 5u);
  for (const auto& probe : result) EXPECT_FALSE(probe["reading"].get<std::string>().empty());
  const Outcome text = run_sape2({"probe", model, "--images", "40", "--probes", "sizes"});
  EXPECT_NE(text.out.find("64×64"), std::string::npos) << text.out;
  expect_mistake(run_sape2({"probe", model, "--probes", "sizes,shift"}), 1, "shift");
}

}  // namespace
}  // namespace sape2::cli::test
