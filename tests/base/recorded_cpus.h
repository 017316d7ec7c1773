#pragma once

#include "sape2/base/cpu.h"

/// What CPUs say of themselves. Zen 5 was read on such a machine. Of the others, Skylake's leaves 1
/// and 7 and Sapphire Rapids' leaf 1 come from public dumps; family, model and feature bits of the
/// rest are composed from what their makers document. Bits of XCR0: 0x7 up to AVX, 0xE0 AVX-512,
/// 0x60000 AMX.
namespace sape2::base::test {

/// AMD EPYC, Zen 5, virtual: family 26, model 2.
inline const CpuRecord kZen5 = {.vendor = "AuthenticAMD",
                                .leaf1_eax = 0x00B00F21,
                                .leaf1_ecx = 0xFFFA3203,
                                .leaf7_ebx = 0xF1BF07AB,
                                .leaf7_ecx = 0x00405FC6,
                                .leaf7_edx = 0x00000110,
                                .leaf7_1_eax = 0x00000030,
                                .xcr0 = 0xE7};

/// AMD EPYC 7002, Zen 2: family 23, model 49.
inline const CpuRecord kZen2 = {.vendor = "AuthenticAMD",
                                .leaf1_eax = 0x00830F10,
                                .leaf1_ecx = 0x7ED8320B,
                                .leaf7_ebx = 0x219C91A9,
                                .leaf7_ecx = 0x00400004,
                                .xcr0 = 0x207};

/// Intel Core i7-6700, Skylake: family 6, model 94; no AVX-512.
inline const CpuRecord kSkylakeClient = {.vendor = "GenuineIntel",
                                         .leaf1_eax = 0x000506E3,
                                         .leaf1_ecx = 0x7FFAFBBF,
                                         .leaf7_ebx = 0x029C6FBB,
                                         .xcr0 = 0x1F};

/// Intel Xeon, Sapphire Rapids, not virtual: family 6, model 143; AMX works.
inline const CpuRecord kSapphireRapids = {.vendor = "GenuineIntel",
                                          .leaf1_eax = 0x000806F8,
                                          .leaf1_ecx = 0x7FFEFBFF,
                                          .leaf7_ebx = 0xF3BFBFFB,
                                          .leaf7_ecx = 0xFB417FFE,
                                          .leaf7_edx = 0xFFDD4432,
                                          .leaf7_1_eax = 0x00001C30,
                                          .leaf1d_eax = 1,
                                          .leaf1d_1_ebx = 0x00080040,
                                          .leaf1d_1_ecx = 0x00000010,
                                          .leaf1e_ebx = 0x00004010,
                                          .xcr0 = 0x602E7,
                                          .kernel_grants_tiles = true};

/// Intel Xeon, Emerald Rapids, virtual: family 6, model 207. AMX is announced and its register
/// states are saved, but the palette of tiles is empty.
inline const CpuRecord kEmeraldRapidsVirtual = [] {
  CpuRecord record = kSapphireRapids;
  record.leaf1_eax = 0x000C06F2;
  record.leaf1_ecx = 0xFFFA3203;
  record.leaf1d_eax = record.leaf1d_1_ebx = record.leaf1d_1_ecx = record.leaf1e_ebx = 0;
  return record;
}();

/// Intel Core i7-2600, Sandy Bridge: family 6, model 42; AVX without FMA.
inline const CpuRecord kSandyBridge = {
    .vendor = "GenuineIntel", .leaf1_eax = 0x000206A7, .leaf1_ecx = 0x1FBAE3BF, .xcr0 = 0x7};

}  // namespace sape2::base::test
