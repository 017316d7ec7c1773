#include "sape2/kernels/runtime.h"

#include "sape2/base/error.h"

#include "cpu/target.h"

#include <hwy/highway.h>

namespace sape2::kernels {

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    names.emplace_back(hwy::TargetName(target));
  }
  return names;
}

void use_simd_target(const std::string& name) {
  hwy::SetSupportedTargetsForTest(0);
  if (!name.empty()) {
    std::int64_t chosen = 0;
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      if (name == hwy::TargetName(target)) chosen = target;
    }
    if (chosen == 0) {
      throw Error("the SIMD target is \"" + name + "\"; expected one of simd_targets()");
    }
    hwy::SetSupportedTargetsForTest(chosen);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace sape2::kernels
