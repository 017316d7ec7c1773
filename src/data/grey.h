#pragma once

namespace sape2::data {

/// Rec. 601 luma in whole numbers, as Pillow rounds it: the sum of the
/// three products and kGreyHalf, over 2^kGreyBits.
/// The CUDA kernel of the augmentation has them too.
inline constexpr int kGreyRed = 19595, kGreyGreen = 38470, kGreyBlue = 7471;
inline constexpr int kGreyBits = 16, kGreyHalf = 1 << (kGreyBits - 1);

}  // namespace sape2::data
