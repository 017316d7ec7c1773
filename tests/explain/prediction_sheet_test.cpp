#include "sape2/explain/prediction_sheet.h"

#include "sape2/components.h"

#include "explain/hand_made.h"
#include "support/error_text.h"

#include <gtest/gtest.h>

namespace sape2::explain {
namespace {

using namespace sape2::testing;

SeenPicture seen(const std::string& label, const std::string& predicted) {
  return {{.name = "image", .image = test::some_image(), .label = label}, {{0, predicted, 0.62}}};
}

TEST(PredictionSheet, CountsWhatIsRight) {
  EXPECT_EQ(count_text({seen("cat", "cat"), seen("dog", "cat"), seen("", "cat")}),
            "1 of 2 is right");
  EXPECT_EQ(count_text({seen("cat", "cat"), seen("dog", "dog")}), "2 of 2 are right");
  EXPECT_EQ(count_text({seen("", "cat")}), "");
}

TEST(PredictionSheet, NamesTheTrueClassOfWhatIsWrong) {
  if (!SAPE2_HAVE_DRAWING) GTEST_SKIP() << "this build cannot draw";
  const auto size_of = [](const std::vector<SeenPicture>& pictures) {
    return render_prediction_sheet("title", pictures, FigureFormat::svg).size();
  };
  // In an SVG text is drawn as glyphs: more words are more of them.
  EXPECT_GT(size_of({seen("dog", "cat")}), size_of({seen("cat", "cat")}));
  const std::vector<SeenPicture> twelve(12, seen("cat", "cat"));
  EXPECT_TRUE(render_prediction_sheet("t", twelve, FigureFormat::png).starts_with("\x89PNG"));
}

TEST(PredictionSheet, RefusesNothingAndTooMuch) {
  if (!SAPE2_HAVE_DRAWING) GTEST_SKIP() << "this build cannot draw";
  const auto error = [](std::size_t count) {
    const std::vector<SeenPicture> pictures(count, seen("cat", "cat"));
    return error_text([&] { render_prediction_sheet("title", pictures, FigureFormat::png); });
  };
  EXPECT_NE(error(0).find("no image"), std::string::npos);
  EXPECT_NE(error(241).find("at most 240"), std::string::npos) << error(241);
}

}  // namespace
}  // namespace sape2::explain
