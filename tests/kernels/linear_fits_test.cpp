// Which sizes linear layers' CUDA kernels serve, and with how much memory; needs no GPU.
#include "kernels/cuda/linear/fits.h"

#include <gtest/gtest.h>

namespace sape2::kernels::cuda::linear {
namespace {

TEST(LinearFits, ChoosesWhatFitsIntoSharedMemory) {
  for (std::int64_t depth = 8; depth <= 2048; depth += 8) {
    for (const std::int64_t width : {8, 64, 128, 192, 200, 384, 512, 1536, 3072}) {
      const ResidentVariant v = resident_variant(depth, width);
      if (v.columns > 0) {
        EXPECT_LE(shared_bytes_of(v, tiles_of(depth, kChunk)), kSharedMemory);
        EXPECT_LE(tiles_of(depth, kChunk), kMostChunks);
      } else {
        EXPECT_GT(depth, 384);
      }
    }
  }
}

TEST(LinearFits, ServesTheModelsWeHave) {
  EXPECT_EQ(resident_variant(384, 1536).columns, 192);
  EXPECT_EQ(resident_variant(192, 384).columns, 192);
  EXPECT_EQ(resident_variant(192, 512).columns, 128);
  EXPECT_EQ(resident_variant(768, 3072).columns, 0);
}

TEST(LinearFits, RefusesRowsThatAreNotAligned) {
  EXPECT_EQ(resident_variant(100, 192).columns, 0);
  EXPECT_EQ(resident_variant(192, 100).columns, 0);
  EXPECT_EQ(resident_variant(0, 192).columns, 0);
}

TEST(LinearFits, CountsTilesOfGradients) {
  EXPECT_EQ(gradient_tiles(1152, 384, 256), 18);
  EXPECT_EQ(gradient_tiles(1152, 384, 192), 18);
  EXPECT_EQ(gradient_tiles(384, 1536, 256), 18);
  EXPECT_EQ(gradient_tiles(384, 1536, 192), 24);
  // Four layers of a ViT-Small fill an H200 twice.
  EXPECT_LT(gradient_time(264, 256, 132), gradient_time(288, 192, 132));
}

}  // namespace
}  // namespace sape2::kernels::cuda::linear
