#pragma once

#include <string>
#include <vector>

namespace sape2::cli {

struct CpuInfo {
  std::string model;  ///< as the maker calls it; empty where the system does not say
  int cores = 1;      ///< that this process may use
  std::vector<std::string> features;  ///< vector instructions that matter here, narrowest first
};

CpuInfo find_cpu_info();

/// Cores that this process may use.
int usable_cores();

}  // namespace sape2::cli
