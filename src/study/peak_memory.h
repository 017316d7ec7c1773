#pragma once

#include <cstdint>
#include <string>

namespace sape2::study {

/// Forgets the largest memory use so far, of this process or of the GPU named by `device`.
void reset_peak_memory(const std::string& device);

/// The largest use since then, in bytes; 0 where the system does not tell.
std::int64_t peak_memory(const std::string& device);

}  // namespace sape2::study
