#include "sape2/nn/encoding_definition.h"

#include "nn/definitions/table_rows.h"

#include <algorithm>

namespace sape2::nn {

int64_t cope_table_rows(const EncodingSpec& spec, const EncodingShape& shape) {
  constexpr int64_t kLongestDefault = 64;
  return spec.integer("M").value_or(
      std::max<int64_t>(2, std::min(shape.tokens(), kLongestDefault)));
}

std::vector<EncodingDefinition> define_cope() {
  return {{.name = "cope",
           .summary = "contextual positions: gated sums over the raster order of all tokens",
           .options = {{.name = "M",
                        .kind = OptionKind::integer,
                        .description = "rows of the table; longer sums clamp to the last",
                        .default_text = "min(N, 64)",
                        .minimum = 2},
                       {.name = "bias",
                        .kind = OptionKind::choice,
                        .description = "whether the bias is divided by √d as q·k is",
                        .choices = {"inside", "outside"},
                        .default_value = "outside"}},
           .silent_start = [](const EncodingSpec& spec) {
             return std::optional(SilentStart{spec, {"e"}});
           }}};
}

}  // namespace sape2::nn
