#pragma once

#include <cstdint>
#include <functional>

namespace sape2::cli {

/// The most memory that `work` held beyond what it began with and what it left behind: LibTorch's
/// tensors on this thread, and the scratch memory of our kernels.
std::int64_t peak_extra_bytes(const std::function<void()>& work);

}  // namespace sape2::cli
