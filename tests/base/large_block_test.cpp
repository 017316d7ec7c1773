#include "sape2/base/large_block.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <new>

namespace sape2::base {
namespace {

std::uintptr_t place_of(const Block& block) {
  return reinterpret_cast<std::uintptr_t>(block.get());
}

TEST(LargeBlock, IsAlignedAndWhole) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{4097}, (std::size_t{9} << 20) + 5}) {
    const Block block = large_block(bytes);
    EXPECT_EQ(place_of(block) % 64, 0u) << bytes;
    std::memset(block.get(), 0x5A, bytes);
    if (bytes > 0) {
      EXPECT_EQ(block.get()[bytes - 1], std::byte{0x5A});
    }
  }
}

TEST(LargeBlock, BeginsWithALargePage) {
  EXPECT_EQ(place_of(large_block(std::size_t{16} << 20)) % (std::size_t{2} << 20), 0u);
}

TEST(LargeBlock, RefusesWhatNoMachineHas) {
  EXPECT_THROW(large_block(std::numeric_limits<std::size_t>::max()), std::bad_alloc);
  EXPECT_THROW(large_block(std::numeric_limits<std::size_t>::max() / 2), std::bad_alloc);
}

}  // namespace
}  // namespace sape2::base
