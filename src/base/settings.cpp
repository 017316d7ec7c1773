#include "sape2/base/settings.h"

#include <strings.h>

namespace sape2::base {
namespace {

struct Core {
  const char* name;
  VectorLevel vectors;
};

// As OpenBLAS names them. It takes CPUs of a family it does not know for one of the first line.
constexpr Core kCores[] = {
    {"Prescott", VectorLevel::sse},
    {"Core2", VectorLevel::sse},
    {"Penryn", VectorLevel::sse},
    {"Dunnington", VectorLevel::sse},
    {"Nehalem", VectorLevel::sse},
    {"Atom", VectorLevel::sse},
    {"Opteron", VectorLevel::sse},
    {"Opteron_SSE3", VectorLevel::sse},
    {"Barcelona", VectorLevel::sse},
    {"Bobcat", VectorLevel::sse},
    {"Nano", VectorLevel::sse},
    {"Sandybridge", VectorLevel::avx},
    {"Bulldozer", VectorLevel::avx},
    {"Piledriver", VectorLevel::avx},
    {"Steamroller", VectorLevel::avx},
    {"Excavator", VectorLevel::avx2},
    {"Haswell", VectorLevel::avx2},
    {"Zen", VectorLevel::avx2},
    {"SkylakeX", VectorLevel::avx512},
    {"Cooperlake", VectorLevel::avx512},
    {"SapphireRapids", VectorLevel::avx512},
};

// Core types that every OpenBLAS since 0.3.0 takes by name; 0.3.21 does not take "Cooperlake".
std::string core_for(const CpuRecord& record) {
  switch (features_of(record).vectors) {
    case VectorLevel::avx512:
      return "SkylakeX";
    case VectorLevel::avx2:
      return record.vendor == "GenuineIntel" ? "Haswell" : "Zen";
    case VectorLevel::avx:
      return "Sandybridge";
    case VectorLevel::sse:
      break;
  }
  return "";
}

}  // namespace

std::vector<Setting> settings_for(const CpuRecord& record) {
  // Idle OpenMP threads spin for milliseconds by default, on cores that other threads of the
  // process want: those of a second OpenMP runtime, of OpenBLAS, or of the user's program.
  std::vector<Setting> settings = {{.variables = {"OMP_WAIT_POLICY"},
                                    .relatives = {"GOMP_SPINCOUNT", "KMP_BLOCKTIME"},
                                    .value = "PASSIVE",
                                    .reason = "idle threads sleep instead of spinning"}};
  const CpuFeatures features = features_of(record);
  if (features.amx_announced && !features.amx_usable) {
    // A cap only: oneDNN still asks for each instruction set below it. Every version knows this
    // name; the older variable is for those before 2.3.
    settings.push_back({.variables = {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"},
                        .value = "AVX512_CORE_BF16",
                        .reason = "the CPU announces AMX, but its tiles cannot be used"});
  }
  return settings;
}

std::string better_openblas_core(const CpuRecord& record, const std::string& chosen) {
  VectorLevel used = VectorLevel::sse;
  if (!vectors_of_openblas_core(chosen, used) || used >= features_of(record).vectors) return "";
  return core_for(record);
}

bool vectors_of_openblas_core(const std::string& core, VectorLevel& vectors) {
  for (const Core& known : kCores) {
    if (::strcasecmp(known.name, core.c_str()) != 0) continue;
    vectors = known.vectors;
    return true;
  }
  return false;
}

}  // namespace sape2::base
