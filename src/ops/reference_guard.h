#pragma once

namespace sape2::ops {

/// Whether a ReferenceGuard lives on this thread.
bool reference_only();

}  // namespace sape2::ops
