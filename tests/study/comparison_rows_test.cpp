#include "sape2/base/error.h"
#include "sape2/nn/encoding_definition.h"
#include "sape2/nn/vit.h"
#include "sape2/study/comparison.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace sape2::study {
namespace {

std::string value_of(const nn::EncodingSpec& spec, const nn::EncodingOption& option) {
  switch (option.kind) {
    case nn::OptionKind::choice:
      return spec.choice(option.name);
    case nn::OptionKind::number: {
      const auto number = spec.number(option.name);
      return number ? std::to_string(*number) : "";
    }
    case nn::OptionKind::integer: {
      const auto number = spec.integer(option.name);
      return number ? std::to_string(*number) : "";
    }
  }
  return "";
}

int options_that_differ(const nn::EncodingSpec& a, const nn::EncodingSpec& b) {
  int count = 0;
  for (const nn::EncodingOption& option : nn::encoding_definition(a.name()).options) {
    count += value_of(a, option) != value_of(b, option);
  }
  return count;
}

at::Tensor logits_of(const std::string& encoding) {
  nn::ModelConfig config;
  config.vit.depth = 2;
  config.vit.width = 32;
  config.vit.heads = 2;
  config.encoding = nn::EncodingSpec::parse(encoding);
  nn::ViT model(config, {.seed = 3});
  model.eval();
  return model.forward(at::arange(2 * 3 * 32 * 32, at::kFloat).sin().view({2, 3, 32, 32}));
}

TEST(FamilyRows, ChangeOneOptionAStep) {
  const auto rows = family_rows();
  ASSERT_GE(rows.size(), 3u);
  EXPECT_EQ(rows.front().encoding.to_string(), "sape2-k");
  EXPECT_EQ(rows[rows.size() - 2].encoding.to_string(), "sape2-rel-k");
  EXPECT_EQ(rows.back().encoding.to_string(), "sape2-rel-k[gates=open]");
  for (std::size_t i = 1; i < rows.size(); ++i) {
    EXPECT_EQ(options_that_differ(rows[i - 1].encoding, rows[i].encoding), 1)
        << rows[i].encoding.to_string();
  }
}

TEST(FamilyRows, EndInTheSameModelUnderBothNames) {
  const at::Tensor written_out =
      logits_of("sape2-k[span=between,form=direct,bias=outside,gate-offset=2,gates=learnable]");
  EXPECT_TRUE(at::equal(written_out, logits_of("sape2-rel-k")));
  EXPECT_FALSE(at::equal(written_out, logits_of("sape2-k")));
}

TEST(PaperRows, CarryThePapersFigures) {
  const auto table1 = paper_rows("table1", "cifar100");
  ASSERT_EQ(table1.size(), 6u);
  EXPECT_EQ(table1[3].encoding.to_string(), "cope+ape");
  EXPECT_EQ(table1[3].published.top1, 72.10);
  EXPECT_EQ(table1[5].published.top1, 72.23);
  EXPECT_EQ(paper_rows("table1", "cifar10")[5].published.top1, 93.98);

  const auto table2 = paper_rows("table2", "cifar10");
  ASSERT_EQ(table2.size(), 3u);
  EXPECT_EQ(table2[2].encoding.to_string(), "sape2-q+ape");
  EXPECT_EQ(table2[2].published.top1, 90.17);
  EXPECT_EQ(table2[2].published.top5, 99.46);
}

TEST(PaperRows, HaveNoFiguresWhereThePaperHasNone) {
  for (const auto& row : paper_rows("table1", "shapes")) EXPECT_FALSE(row.published.top1);
  for (const auto& row : paper_rows("table2", "cifar100")) EXPECT_FALSE(row.published.top1);
  EXPECT_THROW(paper_rows("table3", "cifar10"), Error);
}

TEST(ListedRows, RefuseTheSameEncodingTwice) {
  EXPECT_EQ(listed_rows("ape,sape2-k[gain=-1]+ape").size(), 2u);
  EXPECT_THROW(listed_rows("ape,rope,none+ape"), Error);
}

}  // namespace
}  // namespace sape2::study
