#include "cli/info/info_text.h"

#include "sape2/nn/encoding_definition.h"
#include "sape2/nn/presets.h"
#include "sape2/nn/vit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sape2::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string counted(std::int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// Three significant figures, as model sizes are spoken of.
std::string in_millions(std::int64_t parameters) {
  const double millions = static_cast<double>(parameters) / 1e6;
  const int decimals = millions < 10 ? 2 : millions < 100 ? 1 : 0;
  return fmt::format("{:.{}f} M", millions, decimals);
}

std::string in_mebibytes(std::uintmax_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string or_unknown(const std::string& text) {
  return text.empty() ? "unknown" : text;
}

std::string blas_text(const BlasLibrary& blas) {
  const std::string place = blas.path.empty() ? "" : fmt::format(" ({})", blas.path);
  return fmt::format("{}, {}{}", with_kernels(blas), counted(blas.threads, "thread"), place);
}

std::string rate_text(const MachineInfo& machine) {
  return fmt::format(
      "{:.0f} GFLOP/s per thread in float32 matrix products; a core gives {:.0f} at most "
      "(measured)",
      machine.thread_gflops, machine.core_gflops);
}

std::string amx_text(const base::CpuFeatures& cpu) {
  if (!cpu.amx_announced || cpu.amx_usable) return "";
  return " (AMX is announced, but cannot be used)";
}

std::string setting_text(const base::AppliedSetting& setting) {
  if (setting.set_by == base::SetBy::user) return "set by you";
  return "set by sape2: " + setting.reason +
         (setting.in_time ? "" : "; too late for this process, it holds for its children");
}

void add_settings(Rows& rows, const MachineInfo& machine) {
  std::string title = "settings";
  for (const base::AppliedSetting& setting : machine.settings) {
    rows.push_back(
        {title, fmt::format("{}={}, {}", setting.variable, setting.value, setting_text(setting))});
    title.clear();
  }
}

void add_cuda(Rows& rows, const MachineInfo& machine) {
  const char* built = machine.libtorch_cuda ? "" : "; this LibTorch is built without CUDA";
  if (machine.cuda_devices.empty()) {
    rows.push_back({"CUDA", fmt::format("no device{}", built)});
  }
  for (const CudaDevice& device : machine.cuda_devices) {
    rows.push_back({"CUDA", fmt::format("{}, {}, compute capability {}.{}{}", device.name,
                                        in_mebibytes(device.memory_bytes), device.capability_major,
                                        device.capability_minor, built)});
  }
}

std::string size_text(const nn::Size2d& size) {
  return fmt::format("{}×{}", size.height, size.width);
}

std::string prefix_text(const nn::ViTConfig& vit) {
  std::string text = nn::to_string(vit.pooling);
  if (vit.registers > 0) text += ", " + counted(vit.registers, "register");
  return text;
}

std::string option_values(const nn::EncodingOption& option) {
  switch (option.kind) {
    case nn::OptionKind::choice:
      return fmt::format("{}", fmt::join(option.choices, "|"));
    case nn::OptionKind::number:
      return "NUMBER";
    case nn::OptionKind::integer:
      return "INTEGER";
  }
  return "";
}

}  // namespace

void print_machine(const Terminal& terminal, const MachineInfo& machine) {
  terminal.heading("sape2 " + machine.version);
  Rows rows = {
      {"LibTorch", machine.libtorch},
      {"BLAS", blas_text(machine.blas)},
      {"", rate_text(machine)},
      {"threads", fmt::format("{} of {}", machine.threads, counted(machine.cores, "core"))},
      {"CPU", fmt::format("{}, family {}, model {}", or_unknown(machine.cpu_model),
                          machine.cpu.family, machine.cpu.model)},
      {"", fmt::format("{}{}", fmt::join(machine.cpu.names(), " "), amx_text(machine.cpu))}};
  add_settings(rows, machine);
  add_cuda(rows, machine);
  terminal.table(rows);
  warn_of_slow_blas(terminal, machine.blas);
}

void print_offers(const Terminal& terminal) {
  terminal.print("");
  terminal.heading("Components");
  Rows rows;
  for (const Component& component : components()) {
    rows.push_back(
        {component.name, component.present ? "yes" : "missing",
         component.present ? component.purpose : component.purpose + ": " + component.advice()});
  }
  terminal.table(rows);

  terminal.print("");
  terminal.heading("Encodings (each alone or with +ape; options: sape2 info --encoding NAME)");
  rows.clear();
  for (const nn::EncodingDefinition& definition : nn::encoding_definitions()) {
    rows.push_back({definition.name, definition.summary});
  }
  terminal.table(rows);

  nn::ModelConfig config;
  terminal.print("");
  terminal.heading(fmt::format("Models (parameters with {})", config.encoding.to_string()));
  rows.clear();
  for (const nn::Preset& preset : nn::presets()) {
    config.vit = preset.config;
    rows.push_back({preset.name, in_millions(nn::parameter_count(config)), preset.summary});
  }
  terminal.table(rows);
}

void print_encoding(const Terminal& terminal, const nn::EncodingSpec& spec) {
  const nn::EncodingDefinition& definition = nn::encoding_definition(spec.name());
  terminal.heading(spec.to_string());
  terminal.print("  " + definition.summary);
  terminal.print("");
  if (definition.options.empty()) {
    terminal.print("  no options");
    return;
  }
  Rows rows;
  for (const nn::EncodingOption& option : definition.options) {
    rows.push_back({option.name, option_values(option),
                    fmt::format("{} (default: {})", option.description,
                                option.default_value.value_or(option.default_text))});
  }
  terminal.table(rows);
}

void print_model(const Terminal& terminal, const ModelSummary& model) {
  const nn::ViTConfig& vit = model.config.vit;
  terminal.heading(model.path.string());
  Rows rows = {{"file", fmt::format("{}, {} parameters as {}", in_mebibytes(model.file_bytes),
                                    model.parameters, model.weight_types)},
               {"task", model.config.task},
               {"encoding", model.config.encoding.to_string()},
               {"layers", fmt::format("{} of width {}, {}, MLP ratio {}", vit.depth, vit.width,
                                      counted(vit.heads, "head"), vit.mlp_ratio)},
               {"input", fmt::format("{}, {}, patches of {} (grid {}×{})",
                                     size_text(vit.image_size), counted(vit.channels, "channel"),
                                     size_text(vit.patch_size), vit.rows(), vit.cols())},
               {"pooling", prefix_text(vit)},
               {"dropout", fmt::format("embedding {}, projection {}, MLP {}, stochastic depth {}",
                                       vit.embedding_dropout, vit.projection_dropout,
                                       vit.mlp_dropout, vit.stochastic_depth)},
               {"LayerScale", vit.layer_scale ? fmt::format("from {}", *vit.layer_scale) : "none"}};
  if (model.config.mean.empty()) {
    rows.push_back({"normalised", "no"});
  } else {
    rows.push_back({"mean", fmt::format("{}", fmt::join(model.config.mean, ", "))});
    rows.push_back({"deviation", fmt::format("{}", fmt::join(model.config.deviation, ", "))});
  }
  const auto& names = model.config.class_names;
  rows.push_back({"classes", names.empty()
                                 ? fmt::format("{}, unnamed", vit.classes)
                                 : fmt::format("{}: {}", vit.classes, fmt::join(names, ", "))});
  for (const auto& [key, value] : model.metadata) rows.push_back({key, value});
  terminal.table(rows);
}

}  // namespace sape2::cli
