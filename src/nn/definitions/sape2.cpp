#include "sape2/base/error.h"
#include "sape2/nn/encoding_definition.h"

#include "nn/definitions/table_rows.h"

#include <algorithm>

namespace sape2::nn {

int64_t exact_table_rows(const std::string& span, int64_t rows, int64_t cols) {
  const int64_t longest = std::max(rows, cols);
  return span == "between" ? 2 * longest - 1 : longest + 1;
}

int64_t sape2_table_rows(const EncodingSpec& spec, const EncodingShape& shape) {
  return spec.integer("M").value_or(exact_table_rows(spec.choice("span"), shape.rows, shape.cols));
}

namespace {

void check_sape2_options(const EncodingSpec& spec) {
  const std::string encoding = "encoding \"" + spec.name() + "\"";
  if (spec.choice("gates") == "open") {
    for (const char* option : {"gate-scale", "gate-offset"}) {
      if (!spec.has(option)) continue;
      throw Error(encoding + " has gates=open and " + option +
                  ", but open gates have nothing to scale or offset; drop one of the two");
    }
  }
  const auto rows = spec.integer("M");
  if (!rows) return;
  if (spec.choice("span") == "between" && *rows % 2 == 0) {
    throw Error(
        encoding + " has M=" + std::to_string(*rows) +
        ", but span=between needs an odd number of rows, one for each position from -T to T");
  }
  if (spec.choice("span") == "suffix" && *rows < 2) {
    throw Error(encoding + " has M=" + std::to_string(*rows) +
                ", but span=suffix needs at least 2 rows");
  }
}

// `spec` with options more.
EncodingSpec with_options(const EncodingSpec& spec, const std::string& options) {
  std::string text = spec.without_ape().to_string();
  if (text.back() == ']') {
    text.back() = ',';
  } else {
    text += '[';
  }
  return EncodingSpec::parse(text + options + "]" + (spec.with_ape() ? "+ape" : ""));
}

// The bias is proportional to the gain and to the tables. A distance has no slope where all vectors
// are equal, so that tables of zeros would stay zeros: there the gain has to be learnt.
std::optional<SilentStart> sape2_silent_start(const EncodingSpec& spec) {
  if (spec.choice("gain-mode") != "fixed") return SilentStart{spec, {"gain"}};
  if (spec.choice("form") != "distance") {
    if (spec.number("gain") == 0) return std::nullopt;
    return SilentStart{spec, {"ex", "ey"}};
  }
  if (spec.has("gain")) return std::nullopt;
  return SilentStart{with_options(spec, "gain=0,gain-mode=learnable"), {"gain"}};
}

EncodingOption choice(std::string name, std::vector<std::string> choices, std::string value,
                      std::string description) {
  return {.name = std::move(name),
          .kind = OptionKind::choice,
          .description = std::move(description),
          .choices = std::move(choices),
          .default_value = std::move(value)};
}

EncodingOption number(std::string name, std::optional<std::string> value, std::string text,
                      std::string description) {
  return {.name = std::move(name),
          .kind = OptionKind::number,
          .description = std::move(description),
          .default_value = std::move(value),
          .default_text = std::move(text)};
}

// The options of the paper's setting, or of ours.
std::vector<EncodingOption> sape2_options(bool rel) {
  return {
      choice("span", {"suffix", "between"}, rel ? "between" : "suffix",
             "gates are summed to the end of the row, or from the patch to the other, signed"),
      choice("form", {"distance", "direct", "paths"}, rel ? "direct" : "distance",
             "the bias is the distance of two patches' vectors, read from the query's, or the mean "
             "over both paths between the two"),
      choice("gates", {"fixed", "learnable", "open"}, rel ? "learnable" : "fixed",
             "scale and offset of the gates are fixed, learnt per head, or all gates are 1"),
      number("gate-scale", std::nullopt, "1/√d", "factor on q·k in a gate; learnable: the start"),
      number("gate-offset", rel ? "2" : "0", "", "added to it; learnable: the start"),
      choice("bias", {"inside", "outside"}, rel ? "outside" : "inside",
             "whether the bias is divided by √d as q·k is"),
      number("gain", "1", "", "factor on the bias; learnable: the start"),
      choice("gain-mode", {"fixed", "learnable", "per-head"}, "fixed",
             "the gain is fixed, learnt per layer, or learnt per layer and head"),
      {.name = "M",
       .kind = OptionKind::integer,
       .description = "rows of the tables; longer positions clamp",
       .default_text = rel ? "2·max(H, W) − 1, or max(H, W) + 1 for span=suffix"
                           : "max(H, W) + 1, or 2·max(H, W) − 1 for span=between"},
      choice("tables", {"shared", "per-head"}, "shared", "one pair a layer, or one for each head"),
      choice("resize", {"clamp", "extend", "resample"}, "clamp",
             "at another grid: clamp longer positions, continue the tables, or stretch them"),
  };
}

EncodingDefinition definition(std::string mode, bool rel, std::string tables_meet) {
  return {.name = (rel ? "sape2-rel-" : "sape2-") + mode,
          .summary = (rel ? "SaPE², relative: gated offsets between patches, tables read by "
                          : "SaPE² as published: gated sums to the end, tables read by ") +
                     tables_meet,
          .options = sape2_options(rel),
          .check_options = check_sape2_options,
          .silent_start = sape2_silent_start};
}

}  // namespace

std::vector<EncodingDefinition> define_sape2() {
  std::vector<EncodingDefinition> all;
  for (const bool rel : {false, true}) {
    all.push_back(definition("q", rel, "q"));
    all.push_back(definition("k", rel, "k"));
    all.push_back(definition("qk", rel, "q and k"));
  }
  return all;
}

}  // namespace sape2::nn
