#include "sape2/base/start_up.h"

#include "sape2/base/openblas.h"
#include "sape2/base/settings.h"

#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>

namespace sape2::base {
namespace {

// Names the variables that we have set, so that a child process, and a second copy of this code in
// this one, does not take them for the user's.
constexpr const char* kOwnVariables = "SAPE2_SET_VARIABLES";
constexpr const char* kCoreType = "OPENBLAS_CORETYPE";

std::vector<AppliedSetting>& record() {
  static std::vector<AppliedSetting> settings;
  return settings;
}

const CpuRecord& this_cpu() {
  static const CpuRecord cpu = read_cpu();
  return cpu;
}

std::optional<std::string> variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

bool is_own(const std::string& name) {
  std::istringstream names(variable(kOwnVariables).value_or(""));
  for (std::string own; names >> own;) {
    if (own == name) return true;
  }
  return false;
}

void set_own(const std::string& name, const std::string& value) {
  ::setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  if (is_own(name)) return;
  const auto names = variable(kOwnVariables);
  ::setenv(kOwnVariables, (names ? *names + " " + name : name).c_str(), /*overwrite=*/1);
}

// OpenMP's libraries read the environment when they are loaded.
bool openmp_is_loaded() {
  const auto look = [](dl_phdr_info* library, std::size_t, void*) {
    return std::strstr(library->dlpi_name, "libgomp") != nullptr ? 1 : 0;
  };
  return ::dl_iterate_phdr(look, nullptr) != 0;
}

AppliedSetting apply(const Setting& setting) {
  const std::string& name = setting.variables.front();
  std::vector<std::string> deciding = setting.variables;
  deciding.insert(deciding.end(), setting.relatives.begin(), setting.relatives.end());
  bool ours = false;
  for (const std::string& other : deciding) {
    const auto value = variable(other);
    if (!value) continue;
    ours = is_own(other) && *value == setting.value;
    if (!ours) return {.variable = other, .value = *value, .set_by = SetBy::user, .reason = ""};
  }
  const bool late = !ours && name.starts_with("OMP_") && openmp_is_loaded();
  for (const std::string& each : setting.variables) set_own(each, setting.value);
  return {.variable = name, .value = setting.value, .in_time = !late, .reason = setting.reason};
}

}  // namespace

void settle_environment() {
  if (!record().empty()) return;
  for (const Setting& setting : settings_for(this_cpu())) record().push_back(apply(setting));
}

void settle_blas() {
  if (const auto value = variable(kCoreType); value && !is_own(kCoreType)) {
    record().push_back({.variable = kCoreType, .value = *value, .set_by = SetBy::user});
    return;
  }
  const std::string chosen = find_loaded_blas().core;
  const std::string reason = "OpenBLAS does not know this CPU";
  const std::string better = better_openblas_core(this_cpu(), chosen);
  if (!better.empty()) {
    set_own(kCoreType, better);
    const bool done = choose_openblas_kernels_again();
    record().push_back({.variable = kCoreType,
                        .value = better,
                        .in_time = done,
                        .reason = reason + " and chose its " + chosen + " kernels"});
  } else if (const auto value = variable(kCoreType)) {
    record().push_back({.variable = kCoreType, .value = *value, .reason = reason});
  }
}

std::vector<AppliedSetting> applied_settings() {
  return record();
}

void restart_if_late(char** arguments) {
  for (const AppliedSetting& setting : record()) {
    // Everything is in the environment now, so that the new start finds nothing late.
    if (!setting.in_time) ::execv("/proc/self/exe", arguments);
  }
}

}  // namespace sape2::base
