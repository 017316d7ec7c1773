#include "sape2/kernels/scratch_pool.h"

#include <gtest/gtest.h>

#include <thread>

namespace sape2::kernels {
namespace {

void* taken_and_given_back(ScratchPool& pool) {
  std::size_t size = 1000;
  void* block = pool.take(size);
  pool.give_back(block, size);
  return block;
}

// What a thread wrote is in its cache.
TEST(ScratchPool, GivesAThreadTheBlockThatItHadLast) {
  ScratchPool pool;
  std::size_t size = 1000;
  void* mine = pool.take(size);
  void* others = nullptr;
  std::thread([&] { others = taken_and_given_back(pool); }).join();
  pool.give_back(mine, size);
  EXPECT_NE(mine, others);
  EXPECT_EQ(taken_and_given_back(pool), mine);
  EXPECT_EQ(taken_and_given_back(pool), mine);
}

TEST(ScratchPool, GivesABlockOfAnotherThreadRatherThanANewOne) {
  ScratchPool pool;
  void* others = nullptr;
  std::thread([&] { others = taken_and_given_back(pool); }).join();
  const std::size_t bytes = pool.bytes();
  EXPECT_EQ(taken_and_given_back(pool), others);
  EXPECT_EQ(pool.bytes(), bytes);
}

}  // namespace
}  // namespace sape2::kernels
