// What the kernels ask of Highway's library: which of the compiled targets this CPU runs. Debian
// has that library as a shared one only; with these functions here Highway is headers alone, and a
// program linked statically is whole.
#undef HWY_SHARED_DEFINE  // these are ours, not the shared library's
#include "cpu/target.h"

#include <hwy/targets.h>

#include <atomic>
#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace {

#if HWY_ARCH_X86
bool has_half_conversions() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// All that Highway's code for the target may use, and that the system saves the registers.
bool runs_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_half_conversions();
}

bool runs_avx3() {
  return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512cd");
}
#endif

std::int64_t targets_of_this_cpu() {
  std::int64_t targets = HWY_ENABLED_BASELINE;
#if HWY_ARCH_X86
  __builtin_cpu_init();
  if (runs_avx2()) targets |= HWY_AVX2;
  if (runs_avx3()) targets |= HWY_AVX3;
#endif
  return targets;
}

std::atomic<std::int64_t> targets_for_test{0};

}  // namespace

namespace hwy {

std::int64_t SupportedTargets() {
  static const std::int64_t present = targets_of_this_cpu();
  const std::int64_t chosen = targets_for_test.load();
  return chosen != 0 ? chosen : present;
}

void SetSupportedTargetsForTest(std::int64_t targets) {
  targets_for_test.store(targets);
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy
