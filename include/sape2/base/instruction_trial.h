#pragma once

namespace sape2::base {

/// What `trial` returns; false if the CPU refuses one of its instructions (SIGILL, SIGSEGV). For
/// instructions that CPUID announces: some virtual machines do not keep its word. `trial` must hold
/// nothing that a destructor would free. Faults of other threads meanwhile go where they went
/// before.
bool succeeds_here(bool (*trial)());

}  // namespace sape2::base
