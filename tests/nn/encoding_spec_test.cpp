#include "sape2/nn/encoding_spec.h"

#include "sape2/nn/encoding_definition.h"

#include "nn/support.h"

#include <gtest/gtest.h>

namespace sape2::nn::testing {
namespace {

std::string canonical(const std::string& text) {
  return EncodingSpec::parse(text).to_string();
}

std::string refusal(const std::string& text) {
  return error_text([&] { EncodingSpec::parse(text); });
}

TEST(EncodingSpec, WritesTheCanonicalForm) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"none", "none"},
      {"none+ape", "ape"},
      {"sape2-k+ape", "sape2-k+ape"},
      {"sape2-k[]", "sape2-k"},
      {"sape2-k[span=suffix]", "sape2-k"},
      {"sape2-rel-k[span=suffix]", "sape2-rel-k[span=suffix]"},
      {"sape2-rel-k[gates=learnable,gate-offset=2.0]", "sape2-rel-k"},
      {"sape2-k[gain=-1,span=between]+ape", "sape2-k[span=between,gain=-1]+ape"},
      {"sape2-k[gain=1.000]", "sape2-k"},
      {"sape2-k[gain=-0.0]", "sape2-k[gain=0]"},
      {"sape2-k[gain=2.50e-1]", "sape2-k[gain=0.25]"},
      {"sape2-k[gain=1e30]", "sape2-k[gain=1e+30]"},
      {"sape2-k[gate-scale=1]", "sape2-k[gate-scale=1]"},
      {"sape2-rel-k[gates=open]", "sape2-rel-k[gates=open]"},
      {"sape2-k[M=009]", "sape2-k[M=9]"},
      {"cope[bias=outside]", "cope"},
      {"cope[bias=inside,M=16]+ape", "cope[M=16,bias=inside]+ape"},
      {"  sape2-k [ gain = -1 ,\tspan = between ] + ape \n", "sape2-k[span=between,gain=-1]+ape"},
      {"sape2-qk[tables=per-head,resize=resample,gain-mode=per-head,bias=outside,form=direct]",
       "sape2-qk[form=direct,bias=outside,gain-mode=per-head,tables=per-head,resize=resample]"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(canonical(text), expected) << text;
}

TEST(EncodingSpec, CanonicalFormsParseBackToTheSameSpec) {
  for (const std::string& name : all_encodings(/*with_ape=*/true)) {
    EXPECT_EQ(canonical(name), name == "none+ape" ? "ape" : name);
  }
  // Every value of every choice, one at a time.
  for (const EncodingDefinition& definition : encoding_definitions()) {
    for (const EncodingOption& option : definition.options) {
      for (const std::string& value : option.choices) {
        const auto spec =
            EncodingSpec::parse(definition.name + "[" + option.name + "=" + value + "]");
        EXPECT_EQ(EncodingSpec::parse(spec.to_string()), spec);
        EXPECT_EQ(spec.choice(option.name), value);
        EXPECT_EQ(spec.has(option.name), option.default_value != value);
      }
    }
  }
}

TEST(EncodingSpec, EqualMeaningsAreEqual) {
  EXPECT_EQ(EncodingSpec::parse("none + ape"), EncodingSpec::parse("ape"));
  EXPECT_EQ(EncodingSpec(), EncodingSpec::parse("none"));
  EXPECT_NE(EncodingSpec::parse("sape2-k"), EncodingSpec::parse("sape2-k+ape"));
  EXPECT_NE(EncodingSpec::parse("sape2-k"), EncodingSpec::parse("sape2-k[gain=-1]"));
}

TEST(EncodingSpec, GivesValuesAndDefaults) {
  const auto paper = EncodingSpec::parse("sape2-k");
  EXPECT_EQ(paper.choice("span"), "suffix");
  EXPECT_EQ(paper.choice("form"), "distance");
  EXPECT_EQ(paper.choice("gates"), "fixed");
  EXPECT_EQ(paper.choice("bias"), "inside");
  EXPECT_EQ(paper.number("gain"), 1);
  EXPECT_EQ(paper.number("gate-offset"), 0);
  EXPECT_EQ(paper.number("gate-scale"), std::nullopt);
  EXPECT_EQ(paper.integer("M"), std::nullopt);
  const auto ours = EncodingSpec::parse("sape2-rel-qk[M=7,gate-scale=0.5]");
  EXPECT_EQ(ours.choice("span"), "between");
  EXPECT_EQ(ours.choice("form"), "direct");
  EXPECT_EQ(ours.choice("gates"), "learnable");
  EXPECT_EQ(ours.choice("bias"), "outside");
  EXPECT_EQ(ours.number("gate-offset"), 2);
  EXPECT_EQ(ours.number("gate-scale"), 0.5);
  EXPECT_EQ(ours.integer("M"), 7);
  EXPECT_NE(error_text([&] { ours.number("gian"); }).find("gian"), std::string::npos);
}

TEST(EncodingSpec, RefusesEachMistakeWithOneSentence) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "is empty"},
      {"   ", "is empty"},
      {"+ape", "has no name"},
      {"[gain=1]", "has no name"},
      {"sape2k", "the nearest is \"sape2-k\""},
      {"Rope2D", "the nearest is \"rope2d\""},
      {"rope2d-mxied", "the nearest is \"rope2d-mixed\""},
      {"quaternion", "valid are none, ape, sinusoidal"},
      {"ape+ape", "twice"},
      {"sape2-k+rope", "only \"+ape\" can follow"},
      {"sape2-k+", "only \"+ape\" can follow"},
      {"sape2-k+ape+ape", "only \"+ape\" can follow"},
      {"sape2-k[gain=1]ape", "only \"+ape\" can follow"},
      {"sape2-k[gain=1][M=3]", "only \"+ape\" can follow"},
      {"sape2-k[gain=1", "without \"]\""},
      {"sape2-k gain=1]", "without \"[\""},
      {"rope[theta=3]", "\"rope\" has no options, but \"theta=3\" was given"},
      {"sape2-k[gian=1]", "no option \"gian\"; the nearest is \"gain\""},
      {"sape2-k[m=9]", "the nearest is \"M\""},
      {"sape2-k[colour=red]", "valid are span, form, gates"},
      {"sape2-k[gain]", "has no value"},
      {"sape2-k[gain=]", "expected a finite number"},
      {"sape2-k[gain=1x]", "expected a finite number"},
      {"sape2-k[gain=inf]", "expected a finite number"},
      {"sape2-k[gain=nan]", "expected a finite number"},
      {"sape2-k[gain=1e999]", "expected a finite number"},
      {"sape2-k[gain=1,gain=1]", "\"gain\" of encoding \"sape2-k\" is given twice"},
      {"sape2-k[gain=1,]", "empty option"},
      {"sape2-k[,gain=1]", "empty option"},
      {"sape2-k[=1]", "empty option"},
      {"sape2-k[span=sufix]", "cannot be \"sufix\"; the nearest is \"suffix\""},
      {"sape2-k[span=everything]", "valid are suffix, between"},
      {"sape2-k[span=between,M=8]", "odd"},
      {"sape2-rel-k[M=8]", "odd"},
      {"sape2-k[M=1]", "at least 2"},
      {"sape2-k[M=0]", "whole number from 1"},
      {"sape2-k[M=-3]", "whole number from 1"},
      {"sape2-k[M=2.5]", "whole number"},
      {"sape2-k[M=99999999999999999999]", "whole number"},
      {"sape2-k[M=1000000]", "whole number"},
      {"cope[M=1]", "whole number from 2"},
      {"sape2-rel-k[gates=open,gate-offset=2]", "gates=open and gate-offset"},
      {"sape2-k[gates=open,gate-scale=1]", "gates=open and gate-scale"},
  };
  for (const auto& [text, expected] : cases) {
    const std::string sentence = refusal(text);
    EXPECT_NE(sentence.find(expected), std::string::npos) << text << " -> " << sentence;
    EXPECT_EQ(sentence.find('\n'), std::string::npos) << text;
  }
}

TEST(EncodingSpec, AcceptsTheSmallestTables) {
  EXPECT_EQ(canonical("sape2-rel-k[M=1]"), "sape2-rel-k[M=1]");
  EXPECT_EQ(canonical("sape2-k[M=2]"), "sape2-k[M=2]");
}

TEST(EncodingSpec, AnswersHostileTextQuicklyAndShortly) {
  EXPECT_LT(refusal(std::string(1 << 20, 'a')).size(), 1000u);
  std::string option = "sape2-k[";
  option.append(1 << 20, 'b').append("=1]");
  EXPECT_LT(refusal(option).size(), 1000u);
  EXPECT_EQ(refusal("sape2-k\x01\n").find('\x01'), std::string::npos);
}

TEST(EncodingList, SplitsAtCommasOutsideBrackets) {
  const auto specs = parse_encoding_list(" ape, sape2-k[gain=-1,span=between]+ape ,rope2d");
  ASSERT_EQ(specs.size(), 3u);
  EXPECT_EQ(specs[0].to_string(), "ape");
  EXPECT_EQ(specs[1].to_string(), "sape2-k[span=between,gain=-1]+ape");
  EXPECT_EQ(specs[2].to_string(), "rope2d");
}

TEST(EncodingList, RefusesEmptyEntriesAndOpenBrackets) {
  for (const char* text : {"", "ape,", ",ape", "ape,,rope"}) {
    const std::string sentence = error_text([&] { parse_encoding_list(text); });
    EXPECT_NE(sentence.find("empty entry"), std::string::npos) << text;
  }
  EXPECT_NE(error_text([&] { parse_encoding_list("sape2-k[gain=1,ape"); }).find("without \"]\""),
            std::string::npos);
}

TEST(EncodingDefinitions, DescribeThemselves) {
  std::set<std::string> names;
  for (const EncodingDefinition& definition : encoding_definitions()) {
    EXPECT_TRUE(names.insert(definition.name).second) << definition.name << " twice";
    EXPECT_FALSE(definition.summary.empty()) << definition.name;
    for (const EncodingOption& option : definition.options) {
      EXPECT_FALSE(option.description.empty()) << definition.name << " " << option.name;
      EXPECT_TRUE(option.default_value || !option.default_text.empty()) << option.name;
    }
  }
  for (const char* name :
       {"none", "ape", "sinusoidal", "sinusoidal2d", "rpe", "rpe-shaw", "rpe-decomposed", "rope",
        "rope2d", "rope2d-mixed", "cope", "lape", "sape2-q", "sape2-k", "sape2-qk", "sape2-rel-q",
        "sape2-rel-k", "sape2-rel-qk"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

}  // namespace
}  // namespace sape2::nn::testing
