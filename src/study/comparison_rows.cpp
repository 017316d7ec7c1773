#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/study/comparison.h"

#include <algorithm>

namespace sape2::study {
namespace {

struct PaperRow {
  const char* name;
  const char* encoding;
  PublishedFigures cifar10;
  PublishedFigures cifar100;
};

// The unmarked SaPE² of table 1 is the K of table 2: 93.98 stands in both.
const std::vector<PaperRow>& table1() {
  static const std::vector<PaperRow> rows{
      {"ViT", "ape", {87.41, {}}, {66.54, {}}},
      {"2D RoPE", "rope2d", {89.92, {}}, {70.71, {}}},
      {"2D RoPE + APE", "rope2d+ape", {89.98, {}}, {71.32, {}}},
      {"CoPE + APE", "cope+ape", {92.54, {}}, {72.10, {}}},
      {"SaPE²", "sape2-k", {91.06, {}}, {71.29, {}}},
      {"SaPE² + APE", "sape2-k+ape", {93.98, {}}, {72.23, {}}},
  };
  return rows;
}

const std::vector<PaperRow>& table2() {
  static const std::vector<PaperRow> rows{
      {"APE", "ape", {87.41, 99.47}, {}},
      {"SaPE²(K) + APE", "sape2-k+ape", {93.98, 99.71}, {}},
      {"SaPE²(Q) + APE", "sape2-q+ape", {90.17, 99.46}, {}},
  };
  return rows;
}

const std::vector<PaperRow>& table_named(const std::string& table) {
  if (table == "table1") return table1();
  if (table == "table2") return table2();
  throw Error("the paper's table " + in_quotes(table) +
              " is not known; valid are table1 and table2");
}

}  // namespace

std::vector<ComparisonRow> listed_rows(std::string_view encodings) {
  std::vector<ComparisonRow> rows;
  for (const nn::EncodingSpec& spec : nn::parse_encoding_list(encodings)) {
    if (std::ranges::find(rows, spec, &ComparisonRow::encoding) != rows.end()) {
      throw Error("the encoding " + in_quotes(spec.to_string()) +
                  " is listed twice; name each one once");
    }
    rows.push_back({spec});
  }
  return rows;
}

std::vector<ComparisonRow> paper_rows(const std::string& table, const std::string& dataset) {
  std::vector<ComparisonRow> rows;
  for (const PaperRow& row : table_named(table)) {
    PublishedFigures figures;
    if (dataset == "cifar10") figures = row.cifar10;
    if (dataset == "cifar100") figures = row.cifar100;
    rows.push_back({nn::EncodingSpec::parse(row.encoding), row.name, figures});
  }
  return rows;
}

std::vector<ComparisonRow> family_rows() {
  const auto step = [](const char* encoding, const char* note) {
    return ComparisonRow{nn::EncodingSpec::parse(encoding), note};
  };
  return {
      step("sape2-k", "the paper's setting"),
      step("sape2-k[span=between]", "positions counted from the patch, signed"),
      step("sape2-k[span=between,form=direct]", "… vectors read directly, no distance"),
      step("sape2-k[span=between,form=direct,bias=outside]", "… bias not divided by √d"),
      step("sape2-k[span=between,form=direct,bias=outside,gate-offset=2]",
           "… gates near open, fixed"),
      step("sape2-rel-k", "… gates learnt: our setting"),
      step("sape2-rel-k[gates=open]", "control: every gate 1, nothing learnt in them"),
  };
}

}  // namespace sape2::study
