#pragma once

#include <cstdint>
#include <string_view>

namespace sape2::base {

/// FNV-1a: the same on every machine, which std::hash does not promise. Against mistakes, not
/// against an enemy.
constexpr std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

/// What SplitMix64 (Steele, Lea, Flood, 2014) adds to its state before each number.
inline constexpr std::uint64_t kSplitMixStep = 0x9E3779B97F4A7C15u;

/// SplitMix64's number for a state: neighbouring states give unrelated numbers.
constexpr std::uint64_t split_mix(std::uint64_t state) {
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EBu;
  return state ^ (state >> 31);
}

}  // namespace sape2::base
