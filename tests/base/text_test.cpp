#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"
#include "sape2/base/utf8.h"

#include <gtest/gtest.h>

namespace sape2::base::test {
namespace {

TEST(Utf8, TakesOneCharacterAtATime) {
  EXPECT_EQ(first_character("a").code, U'a');
  EXPECT_EQ(first_character("²x").code, U'²');
  EXPECT_EQ(first_character("²x").bytes, 2U);
  EXPECT_EQ(first_character("€").bytes, 3U);
  EXPECT_EQ(first_character("😀").code, U'😀');
  EXPECT_EQ(first_character("").bytes, 0U);
  EXPECT_TRUE(is_utf8("SaPE² 😀"));
}

TEST(Utf8, RefusesWhatIsNoCharacter) {
  EXPECT_FALSE(is_utf8("\x80")) << "no lead byte";
  EXPECT_FALSE(is_utf8("\xC0\x80")) << "overlong";
  EXPECT_FALSE(is_utf8("\xE0\x80\x80")) << "overlong";
  EXPECT_FALSE(is_utf8("\xED\xA0\x80")) << "a surrogate";
  EXPECT_FALSE(is_utf8("\xF4\x90\x80\x80")) << "beyond Unicode";
  EXPECT_FALSE(is_utf8("\xE2\x82")) << "cut short";
}

TEST(InQuotes, ShowsOneLineThatCannotMisleadATerminal) {
  EXPECT_EQ(in_quotes("SaPE²"), "\"SaPE²\"");
  EXPECT_EQ(in_quotes("a\nb\x1b[2J"), "\"a\\x0ab\\x1b[2J\"");
  EXPECT_EQ(in_quotes("\u202Egnp.exe"), "\"\\u202egnp.exe\"");
  EXPECT_EQ(in_quotes("\u0085"), "\"\\u0085\"");
  EXPECT_EQ(in_quotes("\xFF"), "\"\\xff\"");
}

TEST(InQuotes, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(in_quotes(std::string(200, 'a')), '"' + std::string(200, 'a') + '"');
  EXPECT_EQ(in_quotes(std::string(201, 'a')), '"' + std::string(200, 'a') + "…\"");
  EXPECT_EQ(in_quotes(std::string(199, 'a') + "²"), '"' + std::string(199, 'a') + "…\"");
}

TEST(NearestName, CountsTypingMistakes) {
  const std::vector<std::string> valid{"suffix", "between", "M"};
  EXPECT_EQ(nearest_name("sufix", valid), "suffix");
  EXPECT_EQ(nearest_name("usffix", valid), "suffix");
  EXPECT_EQ(nearest_name("BETWEEN", valid), "between");
  EXPECT_EQ(nearest_name("m", valid), "M");
  EXPECT_EQ(nearest_name("x", valid), "");
  EXPECT_EQ(nearest_name("", valid), "");
  EXPECT_EQ(nearest_name("anything", valid), "");
}

}  // namespace
}  // namespace sape2::base::test
