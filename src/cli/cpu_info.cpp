#include "cli/cpu_info.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <thread>

namespace sape2::cli {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

std::vector<std::string> cpu_features() {
  std::vector<std::string> features;
#if defined(__x86_64__)
  __builtin_cpu_init();
  // The built-in takes string literals only.
#define SAPE2_ADD_FEATURE(name) \
  if (__builtin_cpu_supports(name)) features.emplace_back(name)
  SAPE2_ADD_FEATURE("sse4.2");
  SAPE2_ADD_FEATURE("avx");
  SAPE2_ADD_FEATURE("avx2");
  SAPE2_ADD_FEATURE("fma");
  SAPE2_ADD_FEATURE("avx512f");
  SAPE2_ADD_FEATURE("avx512bw");
  SAPE2_ADD_FEATURE("avx512dq");
  SAPE2_ADD_FEATURE("avx512vl");
  SAPE2_ADD_FEATURE("avx512vnni");
  SAPE2_ADD_FEATURE("avx512bf16");
#undef SAPE2_ADD_FEATURE
#elif defined(__aarch64__)
  features.emplace_back("neon");
#endif
  return features;
}

}  // namespace

int usable_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

CpuInfo find_cpu_info() {
  return {.model = cpu_model(), .cores = usable_cores(), .features = cpu_features()};
}

}  // namespace sape2::cli
