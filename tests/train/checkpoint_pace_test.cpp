#include "train/checkpoint_pace.h"

#include <gtest/gtest.h>

namespace sape2::train {
namespace {

using std::chrono::milliseconds;

TEST(CheckpointPace, WaitsAHundredTimesWhatTheLastOneCost) {
  const CheckpointPace::Clock::time_point start{};
  CheckpointPace pace(start);
  EXPECT_TRUE(pace.pays(start + milliseconds(1)));  // of the first nothing is known
  pace.saved(start + milliseconds(1), start + milliseconds(6));
  EXPECT_FALSE(pace.pays(start + milliseconds(6 + 499)));
  EXPECT_TRUE(pace.pays(start + milliseconds(6 + 500)));
  pace.saved(start + milliseconds(600), start + milliseconds(602));
  EXPECT_FALSE(pace.pays(start + milliseconds(602 + 199)));
  EXPECT_TRUE(pace.pays(start + milliseconds(602 + 200)));
  EXPECT_DOUBLE_EQ(pace.seconds(), 0.007);
}

}  // namespace
}  // namespace sape2::train
