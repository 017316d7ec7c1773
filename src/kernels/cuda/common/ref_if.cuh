#pragma once

/// How the steps of a kernel reach what the kernel has in registers.
namespace sape2::kernels::cuda {

/// A reference that steps hold only where they are `Needed`, as a lambda would capture it: objects
/// that nobody can reach cost nothing.
template <class X, bool Needed>
struct RefIf {
  X& to;
  __device__ RefIf(X& x) : to(x) {}
  __device__ X* operator->() const { return &to; }
};
template <class X>
struct RefIf<X, false> {
  __device__ RefIf(X&) {}
};

}  // namespace sape2::kernels::cuda
