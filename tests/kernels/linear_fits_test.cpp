// Which sizes linear layers' CUDA kernels serve, and with how much memory; needs no GPU.
#include "kernels/cuda/linear/fits.h"
#include "readme.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace sape2::kernels::cuda::linear {
namespace {

constexpr int kMultiprocessors = 132;  // of an H200

bool is_taken(std::int64_t rows, std::int64_t depth, std::int64_t width) {
  return why_not_resident(rows, depth, width).empty() && resident_pays(rows);
}

TEST(LinearFits, ChoosesWhatFitsIntoSharedMemory) {
  for (std::int64_t depth = 8; depth <= 2048; depth += 8) {
    for (const std::int64_t width : {8, 64, 128, 192, 200, 384, 512, 1536, 3072}) {
      if (!why_not_resident(8192, depth, width).empty()) {
        EXPECT_GT(depth, 576);
        continue;
      }
      const int columns = resident_columns(8192, depth, width, kMultiprocessors);
      EXPECT_LE(resident_smem_bytes(columns, tiles_of(depth, kChunk)), kSharedMemory);
      EXPECT_LE(tiles_of(depth, kChunk), kMostChunks);
    }
  }
}

TEST(LinearFits, ServesTheModelsWeHave) {
  EXPECT_TRUE(is_taken(8192, 384, 1536));
  EXPECT_TRUE(is_taken(8192, 192, 384));
  EXPECT_EQ(why_not_resident(8192, 768, 3072),
            "the weights of a block do not fit into shared memory");
}

TEST(LinearFits, LeavesFewRowsToCublas) {
  EXPECT_TRUE(is_taken(4096, 384, 1536));
  EXPECT_FALSE(is_taken(4095, 384, 1536));
  EXPECT_EQ(why_not_resident(1, 384, 1536), "");  // it could
}

constexpr std::string_view kUnaligned = "it takes rows of whole 16 bytes";

TEST(LinearFits, RefusesRowsThatAreNotAligned) {
  EXPECT_EQ(why_not_resident(8192, 100, 192), kUnaligned);
  EXPECT_EQ(why_not_resident(8192, 192, 100), kUnaligned);
  EXPECT_EQ(why_not_resident(8192, 0, 192), kUnaligned);
}

TEST(LinearFits, SharesRowsAmongTheBlocksOfAGroup) {
  EXPECT_EQ(resident_blocks(192, 8192, 1536, kMultiprocessors), 16);
  EXPECT_EQ(resident_blocks(128, 8192, 1536, kMultiprocessors), 11);
  // No more blocks than there are pairs of tiles, and one where groups are many.
  EXPECT_EQ(resident_blocks(192, 1, 192, kMultiprocessors), 1);
  EXPECT_EQ(resident_blocks(192, 300, 192, kMultiprocessors), 3);
  EXPECT_EQ(resident_blocks(128, 8192, 128 * 200, kMultiprocessors), 1);
}

TEST(LinearFits, CountsRoundsOfRows) {
  EXPECT_EQ(resident_time(192, 8192, 1536, kMultiprocessors), 4 * 192);
  EXPECT_EQ(resident_time(128, 8192, 1536, kMultiprocessors), 6 * 128);
  EXPECT_EQ(resident_time(192, 8320, 1536, kMultiprocessors), 5 * 192);
  EXPECT_EQ(resident_time(128, 8320, 1536, kMultiprocessors), 6 * 128);
  EXPECT_EQ(resident_time(192, 1, 192, kMultiprocessors), 192);
}

TEST(LinearFits, ChoosesColumnsByRows) {
  const auto columns = [](std::int64_t rows, std::int64_t depth, std::int64_t width) {
    return resident_columns(rows, depth, width, kMultiprocessors);
  };
  // ViT-Small with 64 patches, and with a class token beside them.
  EXPECT_EQ(columns(8192, 384, 1536), kWide);
  EXPECT_EQ(columns(8320, 384, 1536), kNarrow);
  // The compact ViT.
  EXPECT_EQ(columns(16384, 192, 384), kWide);
  // Few rows, a width that only the narrow one divides, and a depth for which the wide one has no
  // room.
  EXPECT_EQ(columns(128, 192, 384), kNarrow);
  EXPECT_EQ(columns(8192, 192, 512), kNarrow);
  EXPECT_EQ(columns(8192, 192, 128), kNarrow);
  EXPECT_EQ(columns(8192, 512, 1536), kNarrow);
}

// What the resident kernel relies on, for sizes of all kinds, on small GPUs and large ones.
TEST(LinearFits, GivesEachTileToOneConsumerAndNoBlockNothing) {
  for (const int multiprocessors : {1, 7, 78, 114, 132, 144}) {
    for (const std::int64_t rows : {1, 63, 64, 65, 128, 129, 191, 192, 193, 4096, 8190, 65600}) {
      for (const std::int64_t width : {8, 128, 136, 192, 200, 384, 1536, 1544, 40000}) {
        for (const int columns : {kWide, kNarrow}) {
          const int blocks = resident_blocks(columns, rows, width, multiprocessors);
          const int tiles = tiles_of(rows, kRows), step = blocks * kConsumers;
          // A block's first consumer always has work: with it come the columns of the weight.
          ASSERT_GE(blocks, 1);
          EXPECT_LT((blocks - 1) * kConsumers, tiles);
          // One block a multiprocessor, where there are as many groups of columns.
          const int groups = tiles_of(width, columns);
          EXPECT_TRUE(blocks == 1 || blocks * groups <= multiprocessors);
          // Rows of partial sums, for which column_sums_workspace has 264.
          EXPECT_LE(blocks, 264);
          std::vector<int> taken(tiles);
          for (int member = 0; member < blocks; ++member)
            for (int consumer = 0; consumer < kConsumers; ++consumer)
              for (int tile = member * kConsumers + consumer; tile < tiles; tile += step)
                ++taken[tile];
          EXPECT_EQ(std::count(taken.begin(), taken.end(), 1), tiles);
          const int turns = tiles_of(tiles, step);
          EXPECT_EQ(resident_time(columns, rows, width, multiprocessors), turns * columns);
        }
      }
    }
  }
}

TEST(LinearFits, TakesTheFasterColumnsThatFit) {
  for (std::int64_t depth = 8; depth <= 576; depth += 56) {
    for (std::int64_t rows = 1; rows <= 70000; rows = rows * 3 + 5) {
      for (std::int64_t width = 8; width <= 4096; width += 136) {
        const auto time = [&](int columns) {
          return resident_time(columns, rows, width, kMultiprocessors);
        };
        const int chosen = resident_columns(rows, depth, width, kMultiprocessors);
        ASSERT_TRUE(chosen == kWide || chosen == kNarrow);
        EXPECT_TRUE(fits(chosen, depth));
        const int other = chosen == kWide ? kNarrow : kWide;
        if (fits(other, depth)) {
          EXPECT_LE(time(chosen), time(other));
        }
      }
    }
  }
}

TEST(LinearFits, CountsRowsByInt) {
  EXPECT_FALSE(can_count(0));
  EXPECT_FALSE(can_count(-64));
  EXPECT_TRUE(can_count(1));
  EXPECT_TRUE(can_count((std::int64_t{1} << 31) - 256));
  EXPECT_FALSE(can_count((std::int64_t{1} << 31) - 1));
  EXPECT_FALSE(can_count(std::int64_t{1} << 32));
}

TEST(LinearFits, CoversEveryGradient) {
  for (std::int64_t outputs = 128; outputs <= 3100; outputs += 232) {
    for (std::int64_t inputs = 128; inputs <= 3100; inputs += 200) {
      for (const int columns : {192, 256}) {
        const std::int64_t tiles = gradient_tiles(outputs, inputs, columns);
        EXPECT_GE(tiles * kTileRows * columns, outputs * inputs);
        EXPECT_LT((tiles_of(outputs, kTileRows) - 1) * kTileRows, outputs);
        EXPECT_LT((tiles_of(inputs, columns) - 1) * columns, inputs);
      }
    }
  }
}

TEST(LinearFits, CountsTilesOfGradients) {
  EXPECT_EQ(gradient_tiles(1152, 384, 256), 18);
  EXPECT_EQ(gradient_tiles(1152, 384, 192), 18);
  EXPECT_EQ(gradient_tiles(384, 1536, 256), 18);
  EXPECT_EQ(gradient_tiles(384, 1536, 192), 24);
  // Four layers of a ViT-Small fill an H200 twice.
  EXPECT_LT(gradient_time(264, 256, 132), gradient_time(288, 192, 132));
}

TEST(LinearFits, SaysWhichGradientsWait) {
  EXPECT_EQ(why_not_gradient(8192, 384, 1536), "");
  EXPECT_EQ(why_not_gradient(8192, 100, 1536), kUnaligned);
  EXPECT_EQ(why_not_gradient(0, 384, 1536), "it takes 1 to 2,147,483,519 rows");
  EXPECT_TRUE(gradient_pays(1024, 128, 128));
  EXPECT_FALSE(gradient_pays(1023, 128, 128));
  EXPECT_FALSE(gradient_pays(1024, 120, 128));
  EXPECT_FALSE(gradient_pays(1024, 128, 120));
  // Two rounds on all multiprocessors, or as many layers as a launch takes.
  EXPECT_FALSE(gradients_suffice(263, 39, kMultiprocessors));
  EXPECT_TRUE(gradients_suffice(264, 1, kMultiprocessors));
  EXPECT_TRUE(gradients_suffice(1, kMostWeightGradients, kMultiprocessors));
}

// --------------------------------------------------------------------------------- the README

struct Model {
  const char* name;
  std::int64_t width, hidden, rows;
};

/// Forward and backward of an MLP alike: both products have the model's width as their depth.
std::string mlp_row(const Model& m) {
  std::string text = "| " + std::string(m.name) + ", " + std::to_string(m.width) + " → " +
                     std::to_string(m.hidden) + ", " + std::to_string(m.rows) + " rows | ";
  if (!is_taken(m.rows, m.width, m.hidden)) return text + "cuBLAS, `training/bias_gelu.cu` | | |\n";
  const int columns = resident_columns(m.rows, m.width, m.hidden, kMultiprocessors);
  const int blocks =
      resident_blocks(columns, m.rows, m.hidden, kMultiprocessors) * tiles_of(m.hidden, columns);
  return text + "`linear/resident.cuh`, " + std::to_string(columns) + " columns | " +
         std::to_string(blocks) + " | " +
         std::to_string(resident_smem_bytes(columns, tiles_of(m.width, kChunk))) + " |\n";
}

TEST(LinearFits, TheReadmeSaysWhichKernelServesWhichMlp) {
  std::string text = "| MLP | kernel | blocks | bytes of shared memory |\n|---|---|---|---|\n";
  for (const Model& model : {Model{"`vit-compact`", 192, 384, 16384},
                             {"`vit-tiny`, 197 tokens", 192, 768, 128 * 197},
                             {"`vit-small`, 64 tokens", 384, 1536, 128 * 64},
                             {"`vit-small`, 65 tokens", 384, 1536, 128 * 65},
                             {"the widest", 576, 2304, 128 * 64},
                             {"`vit-base`", 768, 3072, 128 * 64}})
    text += mlp_row(model);
  expect_in_readme("linear_fits_test.cpp", text);
}

}  // namespace
}  // namespace sape2::kernels::cuda::linear
