#include "sape2/base/cpu.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace sape2::base {
namespace {

constexpr bool bit(std::uint64_t bits, int index) {
  return (bits >> index & 1) != 0;
}

#if defined(__x86_64__)
constexpr unsigned kTileLeaf = 0x1D;
constexpr unsigned kTileProductLeaf = 0x1E;
constexpr int kTileData = 18;                  // register state XTILEDATA
constexpr int kGetPermittableStates = 0x1021;  // ARCH_GET_XCOMP_SUPP, Linux 5.16
constexpr int kRequestState = 0x1023;          // ARCH_REQ_XCOMP_PERM

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf = 0) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);  // 0 beyond the last leaf
  return r;
}

std::uint64_t read_xcr0() {
  unsigned low = 0, high = 0;
  // As bytes: the instruction's name needs a compiler option that would reach other code too.
  __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

bool kernel_grants_tiles() {
  std::uint64_t states = 0;
  return ::syscall(SYS_arch_prctl, kGetPermittableStates, &states) == 0 && bit(states, kTileData);
}
#endif

}  // namespace

CpuRecord read_cpu() {
  CpuRecord record;
#if defined(__x86_64__)
  const Registers name = cpuid(0), one = cpuid(1), seven = cpuid(7);
  const unsigned letters[] = {name.ebx, name.edx, name.ecx};
  record.vendor.assign(reinterpret_cast<const char*>(letters), sizeof letters);
  record.leaf1_eax = one.eax;
  record.leaf1_ecx = one.ecx;
  record.leaf7_ebx = seven.ebx;
  record.leaf7_ecx = seven.ecx;
  record.leaf7_edx = seven.edx;
  if (seven.eax >= 1) record.leaf7_1_eax = cpuid(7, 1).eax;
  record.leaf1d_eax = cpuid(kTileLeaf).eax;
  if (record.leaf1d_eax >= 1) {
    const Registers palette = cpuid(kTileLeaf, 1);
    record.leaf1d_1_ebx = palette.ebx;
    record.leaf1d_1_ecx = palette.ecx;
    record.leaf1e_ebx = cpuid(kTileProductLeaf).ebx;
  }
  if (bit(one.ecx, 27)) record.xcr0 = read_xcr0();
  record.kernel_grants_tiles = kernel_grants_tiles();
#endif
  return record;
}

CpuFeatures features_of(const CpuRecord& record) {
  CpuFeatures features;
  const auto family = static_cast<int>(record.leaf1_eax >> 8 & 0xF);
  const auto model = static_cast<int>(record.leaf1_eax >> 4 & 0xF);
  features.family =
      family == 0xF ? family + static_cast<int>(record.leaf1_eax >> 20 & 0xFF) : family;
  features.model = family == 6 || family == 0xF
                       ? model + (static_cast<int>(record.leaf1_eax >> 16 & 0xF) << 4)
                       : model;
  features.sse42 = bit(record.leaf1_ecx, 20);
  const bool saves_ymm = bit(record.leaf1_ecx, 27) && (record.xcr0 & 0x06) == 0x06;
  const bool saves_zmm = saves_ymm && (record.xcr0 & 0xE0) == 0xE0;
  const bool avx = saves_ymm && bit(record.leaf1_ecx, 28);
  const bool avx2 = avx && bit(record.leaf7_ebx, 5) && bit(record.leaf1_ecx, 12);
  const bool avx512 = avx2 && saves_zmm && bit(record.leaf7_ebx, 16) && bit(record.leaf7_ebx, 17) &&
                      bit(record.leaf7_ebx, 28) && bit(record.leaf7_ebx, 30) &&
                      bit(record.leaf7_ebx, 31);
  features.vectors = avx512 ? VectorLevel::avx512
                     : avx2 ? VectorLevel::avx2
                     : avx  ? VectorLevel::avx
                            : VectorLevel::sse;
  features.avx512_vnni = avx512 && bit(record.leaf7_ecx, 11);
  features.avx512_bf16 = avx512 && bit(record.leaf7_1_eax, 5);
  features.amx_announced = bit(record.leaf7_edx, 24) || bit(record.leaf7_edx, 22);
  features.amx_usable = features.amx_announced && record.leaf1d_eax > 0 && bit(record.xcr0, 17) &&
                        bit(record.xcr0, 18) && record.kernel_grants_tiles;
  const bool full_palette = (record.leaf1d_1_ebx & 0xFFFF) >= 64 &&
                            record.leaf1d_1_ebx >> 16 >= 8 && (record.leaf1d_1_ecx & 0xFFFF) >= 16;
  const bool full_products =
      (record.leaf1e_ebx & 0xFF) >= 16 && (record.leaf1e_ebx >> 8 & 0xFFFF) >= 64;
  features.amx_bf16 = features.amx_usable && bit(record.leaf7_edx, 24) &&
                      bit(record.leaf7_edx, 22) && full_palette && full_products;
  return features;
}

std::vector<std::string> CpuFeatures::names() const {
  std::vector<std::string> list;
#if defined(__aarch64__)
  list.emplace_back("neon");
#endif
  if (sse42) list.emplace_back("sse4.2");
  if (vectors >= VectorLevel::avx) list.emplace_back("avx");
  if (vectors >= VectorLevel::avx2) list.insert(list.end(), {"avx2", "fma"});
  if (vectors >= VectorLevel::avx512)
    list.insert(list.end(), {"avx512f", "avx512bw", "avx512dq", "avx512vl"});
  if (avx512_vnni) list.emplace_back("avx512vnni");
  if (avx512_bf16) list.emplace_back("avx512bf16");
  if (amx_usable) list.emplace_back("amx");
  return list;
}

bool request_tiles() {
#if defined(__x86_64__)
  return ::syscall(SYS_arch_prctl, kRequestState, kTileData) == 0;
#else
  return false;
#endif
}

std::string cpu_model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

int usable_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace sape2::base
