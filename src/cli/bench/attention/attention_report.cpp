#include "cli/bench/attention/attention_report.h"

#include "sape2/kernels/runtime.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sape2::cli {
namespace {

std::string time_text(double milliseconds) {
  return milliseconds < 100 ? fmt::format("{:.2f}", milliseconds)
                            : fmt::format("{:.0f}", milliseconds);
}

std::vector<std::string> cells(const AttentionRow& row, bool with_reference) {
  const AttentionCase& c = row.wanted;
  const double fused = row.fused.milliseconds;
  std::vector<std::string> cells = {c.encoding.to_string(),
                                    fmt::format("{}×{}, {}×{}, {}", c.shape.rows, c.shape.cols,
                                                c.shape.images, c.shape.heads, c.head_size),
                                    c.dtype,
                                    c.pass(),
                                    time_text(fused),
                                    time_text(row.plain_milliseconds),
                                    fmt::format("{:.2f}×", fused / row.plain_milliseconds),
                                    fmt::format("{:.1f}", row.fused.mebibytes),
                                    fmt::format("{:.0f}", c.plain_operations() / (fused * 1e6))};
  if (!with_reference) return cells;
  cells.push_back(row.reference ? time_text(row.reference->milliseconds) : "–");
  cells.push_back(row.reference ? fmt::format("{:.1f}×", row.reference->milliseconds / fused)
                                : "–");
  cells.push_back(row.reference ? fmt::format("{:.0f}", row.reference->mebibytes) : "–");
  return cells;
}

}  // namespace

void print_report(const Terminal& terminal, const std::vector<AttentionRow>& rows,
                  const BlasLibrary& blas, double gflops, bool with_reference) {
  terminal.heading(fmt::format("Attention on {} thread{}, least times in milliseconds",
                               rows.front().threads, rows.front().threads == 1 ? "" : "s"));
  std::vector<std::vector<std::string>> table = {{"encoding", "grid, images×heads, size", "type",
                                                  "pass", "fused", "plain", "fused/plain", "MiB",
                                                  "GFLOP/s"}};
  if (with_reference) {
    for (const char* name : {"reference", "gain", "ref. MiB"}) table.front().emplace_back(name);
  }
  for (const AttentionRow& row : rows) table.push_back(cells(row, with_reference));
  terminal.table(table);
  terminal.print(fmt::format(
      "\nplain: LibTorch's products and softmax with no bias at all; MiB: held beyond inputs and "
      "outputs;\nGFLOP/s: the products plain attention needs, over fused time. One large matrix "
      "product here: {:.0f} GFLOP/s\n({}).",
      gflops, with_kernels(blas)));
  if (with_reference) {
    terminal.print(
        "reference: the encoding's formula in LibTorch operations (–: over 20 s or too large); "
        "gain: reference/fused.");
  }
  warn_of_slow_blas(terminal, blas);
}

nlohmann::ordered_json case_json(const AttentionCase& wanted) {
  return {{"images", wanted.shape.images}, {"heads", wanted.shape.heads},
          {"rows", wanted.shape.rows},     {"cols", wanted.shape.cols},
          {"head_size", wanted.head_size}, {"dtype", wanted.dtype},
          {"pass", wanted.pass()},         {"encoding", wanted.encoding.to_string()}};
}

std::string report_json(const std::vector<AttentionRow>& rows, const BlasLibrary& blas) {
  auto list = nlohmann::ordered_json::array();
  for (const AttentionRow& row : rows) {
    nlohmann::ordered_json entry = case_json(row.wanted);
    entry.update({{"threads", row.threads},
                  {"blas", blas.name},
                  {"blas_core", blas.core},
                  {"simd", kernels::simd_targets().front()},
                  {"fused_ms", row.fused.milliseconds},
                  {"reference_ms", nullptr},
                  {"plain_ms", row.plain_milliseconds},
                  {"fused_mib", row.fused.mebibytes},
                  {"reference_mib", nullptr}});
    if (row.reference) {
      entry["reference_ms"] = row.reference->milliseconds;
      entry["reference_mib"] = row.reference->mebibytes;
    }
    list.push_back(entry);
  }
  return list.dump(2) + "\n";
}

}  // namespace sape2::cli
