#pragma once

#include <functional>

namespace sape2::cli {

/// Milliseconds of one pass over `work` on the current GPU, the least of `rounds` timed rows of
/// passes. Fails in a build without CUDA.
///
/// Called one after the other, as a program does it; the host may be what is waited for.
double called_milliseconds(const std::function<void()>& work, int rounds);
/// Recorded into a CUDA graph of several passes that is replayed: the device's time alone.
double recorded_milliseconds(const std::function<void()>& work, int rounds);

/// The most memory that `work` held on the current GPU beyond what was there before, in MiB.
double peak_extra_mebibytes(const std::function<void()>& work);

}  // namespace sape2::cli
