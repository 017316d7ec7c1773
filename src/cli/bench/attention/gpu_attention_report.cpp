#include "cli/bench/attention/gpu_attention_report.h"

#include "cli/bench/attention/attention_report.h"
#include "cli/info/cuda_devices.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sape2::cli {
namespace {

std::string device_title(const std::string& device) {
  const auto index = device.starts_with("cuda:") ? std::stoul(device.substr(5)) : 0;
  const auto devices = find_cuda_devices();
  return index < devices.size() ? devices[index].name : device;
}

std::vector<std::string> gpu_cells(const GpuAttentionRow& row) {
  const AttentionCase& c = row.wanted;
  const double fused = row.fused.device(), plain = row.plain.device();
  return {c.encoding.to_string(),
          fmt::format("{}×{}, {}×{}, {}", c.shape.rows, c.shape.cols, c.shape.images, c.shape.heads,
                      c.head_size),
          c.dtype,
          c.pass(),
          fmt::format("{:.3f}", fused),
          fmt::format("{:.3f}", plain),
          fmt::format("{:.2f}×", fused / plain),
          fmt::format("{:.3f}", row.fused.called),
          fmt::format("{:.3f}", row.plain.called),
          row.reference ? fmt::format("{:.2f}", row.reference->called) : "–",
          row.reference ? fmt::format("{:.1f}×", row.reference->called / fused) : "–",
          fmt::format("{:.0f}", row.fused.mebibytes),
          fmt::format("{:.0f}", row.plain.mebibytes),
          row.reference ? fmt::format("{:.0f}", row.reference->mebibytes) : "–",
          fmt::format("{:.0f} %", 100 * row.share_of_ceilings())};
}

nlohmann::ordered_json json_of(const GpuMeasured& measured) {
  return {{"ms", measured.device()}, {"called_ms", measured.called}, {"mib", measured.mebibytes}};
}

}  // namespace

void print_report(const Terminal& terminal, const std::string& device,
                  const std::vector<GpuAttentionRow>& rows) {
  terminal.heading(
      fmt::format("Attention on {}, least times in milliseconds", device_title(device)));
  std::vector<std::vector<std::string>> table = {
      {"encoding", "grid, images×heads, size", "type", "pass", "fused", "plain", "fused/plain",
       "called", "plain called", "reference", "gain", "MiB", "plain MiB", "ref. MiB", "share"}};
  for (const GpuAttentionRow& row : rows) table.push_back(gpu_cells(row));
  terminal.table(table);
  std::string reached;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const GpuCeilings& c = rows[i].ceilings;
    if (i > 0 && rows[i - 1].ceilings.dtype == c.dtype) continue;
    reached += fmt::format(
        " Here a large copy runs at {:.2f} TB/s, a large {} product at {:.0f} "
        "TFLOP/s.",
        c.terabytes, c.dtype, c.teraflops);
  }
  terminal.print(
      "\nfused, plain: replayed from a CUDA graph; called: one call after the other; plain: "
      "LibTorch's\nscaled_dot_product_attention with no bias at all; reference: the encoding's "
      "formula in LibTorch operations (–: left\nout or too large); gain: reference/fused; MiB: "
      "peak beyond inputs; share: of what plain attention needs at the ceilings." +
      reached);
}

std::string report_json(const std::string& device, const std::vector<GpuAttentionRow>& rows) {
  auto list = nlohmann::ordered_json::array();
  for (const GpuAttentionRow& row : rows) {
    nlohmann::ordered_json entry = case_json(row.wanted);
    entry.update({{"device", device_title(device)},
                  {"fused", json_of(row.fused)},
                  {"plain", json_of(row.plain)},
                  {"reference", nullptr},
                  {"copy_terabytes", row.ceilings.terabytes},
                  {"product_teraflops", row.ceilings.teraflops},
                  {"share_of_ceilings", row.share_of_ceilings()}});
    if (row.reference) entry["reference"] = json_of(*row.reference);
    list.push_back(entry);
  }
  return list.dump(2) + "\n";
}

}  // namespace sape2::cli
