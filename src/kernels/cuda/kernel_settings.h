#pragma once

/// What the driver must be told of a kernel before its first launch on a device.
namespace sape2::kernels::cuda {

/// Lets `kernel` have `shared_bytes` of shared memory in a block. `beside_others`: blocks of
/// neighbouring launches meet on a multiprocessor. Were its memory divided for less, the second
/// would find room for fewer of its blocks until the first has left.
/// Remembered, because telling the driver takes a third of a launch's time; who resets the device
/// must not call on.
void set_up_kernel(const void* kernel, int shared_bytes, bool beside_others);

}  // namespace sape2::kernels::cuda
