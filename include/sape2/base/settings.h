#pragma once

#include "sape2/base/cpu.h"

#include <string>
#include <vector>

namespace sape2::base {

/// A value that the libraries below LibTorch should start with on some CPU.
struct Setting {
  std::vector<std::string> variables;  ///< all of these are set: one name per version of a library
  std::vector<std::string> relatives;  ///< other variables by which a user decides the same thing
  std::string value;
  std::string reason;  ///< one clause, for people
};

/// What must stand in the environment before OpenMP and oneDNN start. A function of the record
/// alone.
std::vector<Setting> settings_for(const CpuRecord& record);

/// The core type whose kernels OpenBLAS should use on such a CPU; empty: its own choice is fine.
/// `chosen` is the core type that it has chosen by itself, such as "Prescott".
std::string better_openblas_core(const CpuRecord& record, const std::string& chosen);

/// The vectors that the kernels of a core type of OpenBLAS compute with; false if the name is not
/// known.
bool vectors_of_openblas_core(const std::string& core, VectorLevel& vectors);

}  // namespace sape2::base
