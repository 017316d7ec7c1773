#include "sape2/base/settings.h"

#include "base/recorded_cpus.h"

#include <gtest/gtest.h>

namespace sape2::base::test {
namespace {

const Setting* find(const std::vector<Setting>& settings, const std::string& variable) {
  for (const Setting& setting : settings) {
    for (const std::string& name : setting.variables) {
      if (name == variable) return &setting;
    }
  }
  return nullptr;
}

bool caps_onednn(const CpuRecord& record) {
  return find(settings_for(record), "ONEDNN_MAX_CPU_ISA") != nullptr;
}

TEST(Features, OfRecordedCpus) {
  EXPECT_EQ(features_of(kZen5).family, 26);
  EXPECT_EQ(features_of(kZen5).model, 2);
  EXPECT_EQ(features_of(kZen2).family, 23);
  EXPECT_EQ(features_of(kZen2).model, 49);
  EXPECT_EQ(features_of(kSkylakeClient).family, 6);
  EXPECT_EQ(features_of(kSkylakeClient).model, 94);
  EXPECT_EQ(features_of(kEmeraldRapidsVirtual).model, 207);

  EXPECT_EQ(features_of(kZen5).vectors, VectorLevel::avx512);
  EXPECT_TRUE(features_of(kZen5).avx512_bf16);
  EXPECT_EQ(features_of(kZen2).vectors, VectorLevel::avx2);
  EXPECT_EQ(features_of(kSkylakeClient).vectors, VectorLevel::avx2);
  EXPECT_EQ(features_of(kSandyBridge).vectors, VectorLevel::avx);
  EXPECT_EQ(features_of({}).vectors, VectorLevel::sse);
}

TEST(Features, NeedTheSystemsSupport) {
  CpuRecord record = kZen5;
  record.xcr0 = 0x7;  // saves AVX's registers, not those of AVX-512
  EXPECT_EQ(features_of(record).vectors, VectorLevel::avx2);
  EXPECT_FALSE(features_of(record).avx512_bf16);
  record.xcr0 = 0x3;
  EXPECT_EQ(features_of(record).vectors, VectorLevel::sse);
}

TEST(Features, OfThisCpuAreThoseTheCompilerSees) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const CpuFeatures features = features_of(read_cpu());
  EXPECT_EQ(features.vectors >= VectorLevel::avx, __builtin_cpu_supports("avx") != 0);
  EXPECT_EQ(features.vectors >= VectorLevel::avx2,
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(features.vectors >= VectorLevel::avx512,
            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"));
  EXPECT_EQ(features.avx512_bf16, __builtin_cpu_supports("avx512bf16") != 0);
#else
  GTEST_SKIP() << "this CPU has no CPUID";
#endif
}

TEST(Settings, CapOneDnnWhereTilesAreAnnouncedAndCannotBeUsed) {
  EXPECT_TRUE(caps_onednn(kEmeraldRapidsVirtual));
  EXPECT_FALSE(caps_onednn(kSapphireRapids));
  EXPECT_FALSE(caps_onednn(kZen5));
  EXPECT_FALSE(caps_onednn(kZen2));
  EXPECT_FALSE(caps_onednn(kSkylakeClient));
  EXPECT_FALSE(caps_onednn({}));

  const auto settings = settings_for(kEmeraldRapidsVirtual);
  const Setting* cap = find(settings, "ONEDNN_MAX_CPU_ISA");
  ASSERT_NE(cap, nullptr);
  EXPECT_EQ(cap->value, "AVX512_CORE_BF16");
  EXPECT_EQ(find(settings, "DNNL_MAX_CPU_ISA"), cap);  // the older name
}

TEST(Settings, EveryPartOfAmxIsNeeded) {
  CpuRecord no_state = kSapphireRapids;
  no_state.xcr0 &= ~(std::uint64_t{1} << 18);
  EXPECT_TRUE(caps_onednn(no_state));
  CpuRecord old_kernel = kSapphireRapids;
  old_kernel.kernel_grants_tiles = false;
  EXPECT_TRUE(caps_onednn(old_kernel));
}

TEST(Cpu, MultipliesTilesOfBfloat16OnlyIfTheyAreWhole) {
  EXPECT_TRUE(features_of(kSapphireRapids).amx_bf16);
  EXPECT_FALSE(features_of(kEmeraldRapidsVirtual).amx_bf16);
  EXPECT_FALSE(features_of(kZen5).amx_bf16);
  EXPECT_FALSE(features_of({}).amx_bf16);
  const auto without = [](auto change) {
    CpuRecord record = kSapphireRapids;
    change(record);
    return features_of(record).amx_bf16;
  };
  EXPECT_FALSE(without([](CpuRecord& cpu) { cpu.leaf7_edx &= ~(1U << 22); }));  // no bfloat16
  EXPECT_FALSE(without([](CpuRecord& cpu) { cpu.leaf7_edx &= ~(1U << 24); }));  // no tiles
  EXPECT_FALSE(without([](CpuRecord& cpu) { cpu.leaf1d_eax = 0; }));            // no palette
  EXPECT_FALSE(without([](CpuRecord& cpu) { cpu.leaf1d_1_ebx = 0x00040040; }));
  EXPECT_FALSE(without([](CpuRecord& cpu) { cpu.leaf1d_1_ebx = 0x00080020; }));
  EXPECT_FALSE(without([](CpuRecord& cpu) { cpu.leaf1d_1_ecx = 8; }));
  EXPECT_FALSE(without([](CpuRecord& cpu) { cpu.leaf1e_ebx = 0x00004008; }));
  EXPECT_FALSE(without([](CpuRecord& cpu) { cpu.xcr0 &= 0xFF; }));
  EXPECT_FALSE(without([](CpuRecord& cpu) { cpu.kernel_grants_tiles = false; }));
}

TEST(Settings, IdleThreadsSleepOnEveryCpu) {
  for (const CpuRecord& record : {kZen5, kZen2, kSkylakeClient, kSapphireRapids, CpuRecord{}}) {
    const auto settings = settings_for(record);
    const Setting* policy = find(settings, "OMP_WAIT_POLICY");
    ASSERT_NE(policy, nullptr);
    EXPECT_EQ(policy->value, "PASSIVE");
  }
}

TEST(OpenBlas, GetsTheCoreTypeOfTheFeaturesWhereItFellBack) {
  EXPECT_EQ(better_openblas_core(kEmeraldRapidsVirtual, "Prescott"), "SkylakeX");
  EXPECT_EQ(better_openblas_core(kZen5, "Haswell"), "SkylakeX");
  EXPECT_EQ(better_openblas_core(kZen5, "Zen"), "SkylakeX");
  EXPECT_EQ(better_openblas_core(kSkylakeClient, "Prescott"), "Haswell");
  EXPECT_EQ(better_openblas_core(kZen2, "Barcelona"), "Zen");
  EXPECT_EQ(better_openblas_core(kSandyBridge, "Nehalem"), "Sandybridge");
}

TEST(OpenBlas, IsLeftAloneWhereItsChoiceIsAsWideAsTheCpu) {
  EXPECT_EQ(better_openblas_core(kZen5, "Cooperlake"), "");
  EXPECT_EQ(better_openblas_core(kZen5, "SkylakeX"), "");
  EXPECT_EQ(better_openblas_core(kSapphireRapids, "SapphireRapids"), "");
  EXPECT_EQ(better_openblas_core(kZen2, "Zen"), "");
  EXPECT_EQ(better_openblas_core(kSkylakeClient, "haswell"), "");
  EXPECT_EQ(better_openblas_core({}, "Prescott"), "");
  // Another BLAS, and core types that are not known here.
  EXPECT_EQ(better_openblas_core(kZen5, ""), "");
  EXPECT_EQ(better_openblas_core(kZen5, "Zen9"), "");
}

}  // namespace
}  // namespace sape2::base::test
