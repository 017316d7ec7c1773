#pragma once

/// The largest values that flags accept, where sense and not a type sets the limit.
namespace sape2::cli {

inline constexpr long kLargestImage = 4096;  // pixels a side
inline constexpr long kMostClasses = 1L << 20;
inline constexpr long kMostImages = 1L << 30;

}  // namespace sape2::cli
