#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// What the process runs on, and the settings its libraries need there. Knows no framework.
namespace sape2::base {

/// What the CPU and the kernel say of themselves: everything that decisions are made from, so that
/// a record of any CPU can be decided on anywhere. All 0 on other CPUs than x86-64.
struct CpuRecord {
  std::string vendor;                ///< CPUID leaf 0, such as "GenuineIntel"
  std::uint32_t leaf1_eax = 0;       ///< family, model and stepping
  std::uint32_t leaf1_ecx = 0;       ///< SSE4.2, FMA, AVX, OSXSAVE
  std::uint32_t leaf7_ebx = 0;       ///< AVX2, AVX-512
  std::uint32_t leaf7_ecx = 0;       ///< AVX-512 VNNI
  std::uint32_t leaf7_edx = 0;       ///< AMX
  std::uint32_t leaf7_1_eax = 0;     ///< AVX-512 BF16
  std::uint32_t leaf1d_eax = 0;      ///< the highest tile palette; 0: AMX has no tiles to work with
  std::uint32_t leaf1d_1_ebx = 0;    ///< palette 1: bytes of a tile's row, number of tiles
  std::uint32_t leaf1d_1_ecx = 0;    ///< palette 1: rows of a tile
  std::uint32_t leaf1e_ebx = 0;      ///< the largest tiles that are multiplied
  std::uint64_t xcr0 = 0;            ///< register states that the system saves
  bool kernel_grants_tiles = false;  ///< Linux lets a process ask for AMX's tile registers
};

CpuRecord read_cpu();

/// The widest vectors that the CPU has and the system saves.
enum class VectorLevel { sse, avx, avx2, avx512 };

/// A record in words: an instruction set counts only if the system supports it too.
struct CpuFeatures {
  int family = 0, model = 0;
  VectorLevel vectors = VectorLevel::sse;  ///< `avx2` includes FMA; `avx512` F, CD, BW, DQ and VL
  bool sse42 = false;
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool amx_announced = false;  ///< CPUID says that tiles exist
  bool amx_usable = false;     ///< and they can be used
  bool amx_bf16 = false;       ///< eight of 16 rows × 64 bytes, multiplied as bfloat16

  /// For people, narrowest first: {"sse4.2", "avx", "avx2", "fma", …}.
  std::vector<std::string> names() const;
};

CpuFeatures features_of(const CpuRecord& record);

/// Asks the system for AMX's tile registers, once for all threads of the process; false if it does
/// not give them.
bool request_tiles();

/// As the maker calls it; empty if the system does not say.
std::string cpu_model_name();

/// More threads than these are refused: nobody means them.
inline constexpr int kMostThreads = 1024;

/// Cores that this process may use.
int usable_cores();

}  // namespace sape2::base
