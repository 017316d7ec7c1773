#include "cli/info/info_json.h"

#include "sape2/nn/encoding_definition.h"
#include "sape2/nn/presets.h"
#include "sape2/nn/vit.h"

#include <nlohmann/json.hpp>

namespace sape2::cli {
namespace {

using Json = nlohmann::ordered_json;

Json cuda_json(const MachineInfo& machine) {
  Json devices = Json::array();
  for (const CudaDevice& device : machine.cuda_devices) {
    devices.push_back({{"name", device.name},
                       {"capability", std::to_string(device.capability_major) + "." +
                                          std::to_string(device.capability_minor)},
                       {"memory_bytes", device.memory_bytes}});
  }
  return {{"libtorch", machine.libtorch_cuda}, {"devices", devices}};
}

Json settings_json(const MachineInfo& machine) {
  Json list = Json::array();
  for (const base::AppliedSetting& setting : machine.settings) {
    list.push_back({{"variable", setting.variable},
                    {"value", setting.value},
                    {"set_by", setting.set_by == base::SetBy::user ? "user" : "sape2"},
                    {"in_time", setting.in_time},
                    {"reason", setting.reason}});
  }
  return list;
}

Json components_json() {
  Json list = Json::array();
  for (const Component& component : components()) {
    list.push_back({{"name", component.name},
                    {"purpose", component.purpose},
                    {"present", component.present},
                    {"packages", component.packages}});
  }
  return list;
}

Json option_json(const nn::EncodingOption& option) {
  Json json = {{"name", option.name}, {"description", option.description}};
  if (option.kind == nn::OptionKind::choice) json["choices"] = option.choices;
  json["default"] = option.default_value.value_or(option.default_text);
  return json;
}

Json definition_json(const nn::EncodingDefinition& definition) {
  Json options = Json::array();
  for (const nn::EncodingOption& option : definition.options) {
    options.push_back(option_json(option));
  }
  return {{"name", definition.name}, {"summary", definition.summary}, {"options", options}};
}

Json encodings_json() {
  Json list = Json::array();
  for (const nn::EncodingDefinition& definition : nn::encoding_definitions()) {
    list.push_back(definition_json(definition));
  }
  return list;
}

Json presets_json() {
  Json list = Json::array();
  for (const nn::Preset& preset : nn::presets()) {
    nn::ModelConfig config;
    config.vit = preset.config;
    list.push_back({{"name", preset.name},
                    {"summary", preset.summary},
                    {"encoding", config.encoding.to_string()},
                    {"parameters", nn::parameter_count(config)}});
  }
  return list;
}

std::string to_text(const Json& json) {
  // Names from the system or a user need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string info_json(const MachineInfo& machine) {
  return to_text({{"version", machine.version},
                  {"libtorch", machine.libtorch},
                  {"threads", machine.threads},
                  {"blas",
                   {{"name", machine.blas.name},
                    {"path", machine.blas.path},
                    {"core", machine.blas.core},
                    {"threads", machine.blas.threads},
                    {"slow", machine.blas.is_slow},
                    {"narrow", machine.blas.is_narrow},
                    {"gflops_per_thread", machine.thread_gflops}}},
                  {"cpu",
                   {{"model", machine.cpu_model},
                    {"family", machine.cpu.family},
                    {"model_number", machine.cpu.model},
                    {"cores", machine.cores},
                    {"features", machine.cpu.names()},
                    {"amx_announced", machine.cpu.amx_announced},
                    {"amx_usable", machine.cpu.amx_usable},
                    {"gflops_per_core", machine.core_gflops}}},
                  {"settings", settings_json(machine)},
                  {"cuda", cuda_json(machine)},
                  {"components", components_json()},
                  {"encodings", encodings_json()},
                  {"presets", presets_json()}});
}

std::string info_json(const nn::EncodingSpec& spec) {
  return to_text({{"encoding", spec.to_string()},
                  {"definition", definition_json(nn::encoding_definition(spec.name()))}});
}

std::string info_json(const ModelSummary& model) {
  return to_text({{"file", model.path.string()},
                  {"file_bytes", model.file_bytes},
                  {"parameters", model.parameters},
                  {"weight_types", model.weight_types},
                  {"config", Json::parse(nn::to_json(model.config))},
                  {"metadata", model.metadata}});
}

}  // namespace sape2::cli
