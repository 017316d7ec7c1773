#include "sape2/infer/session.h"

#include "sape2/base/error.h"
#include "sape2/infer/thread_pool.h"

#include "infer/support.h"
#include "support/error_text.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

// Every allocation of this program is counted.
namespace {
std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t size, std::size_t alignment) {
  ++allocations;
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  if (void* memory = std::aligned_alloc(alignment, rounded ? rounded : alignment)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) {
  return counted(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace sape2::infer::testing {
namespace {

using namespace sape2::testing;

TEST(Session, AllocatesNothingAfterTheFirstCallOfASize) {
  for (const std::string& encoding : encodings_with_options()) {
    SCOPED_TRACE(encoding);
    const SavedModel saved(small_config(encoding));
    for (const int threads : {1, 2}) {
      const Arithmetic arithmetic = threads == 1 ? Arithmetic::float32 : Arithmetic::bfloat16;
      Session session(Model::open(saved.path, {arithmetic}), {.threads = threads});
      const std::vector<float> pixels = random_numbers(4 * 3 * 12 * 20, 1);
      std::vector<float> logits(4 * 10);
      session.run({pixels.data(), 4, 12, 20}, logits);
      session.run({pixels.data(), 1, 24, 20}, std::span(logits).first(10));
      const std::int64_t before = allocations;
      for (int round = 0; round < 3; ++round) {
        session.run({pixels.data(), 4, 12, 20}, logits);
        session.run({pixels.data(), 2, 12, 20}, std::span(logits).first(20));
        session.run({pixels.data(), 1, 24, 20}, std::span(logits).first(10));
      }
      EXPECT_EQ(allocations, before);
    }
  }
}

TEST(Session, SharesAModelBetweenThreads) {
  const SavedModel saved(small_config("sape2-rel-qk+ape"));
  const Model model = Model::open(saved.path);
  const std::vector<float> pixels = random_numbers(8 * 3 * 12 * 20, 2);
  const auto expected = Session(model, {.threads = 1}).run({pixels.data(), 8, 12, 20});
  const ThreadPool pool(2);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      SessionOptions options{.threads = 1 + t % 2};
      if (t % 4 == 3) options.executor = &pool;  // two threads share one pool
      Session session(model, options);
      for (int round = 0; round < 5; ++round) {
        wrong += session.run({pixels.data(), 8, 12, 20}) != expected;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Images go through the layers on a thread each, in groups, or with all threads at once.
TEST(Session, ComputesTheSameHoweverABatchIsShared) {
  const SavedModel saved(small_config("sape2-rel-k"));
  const Model model = Model::open(saved.path);
  constexpr std::int64_t kMost = 37;
  const std::vector<float> pixels = random_numbers(kMost * 3 * 12 * 20, 3);
  std::vector<float> expected;
  Session single(model, {.threads = 1});
  for (std::int64_t image = 0; image < kMost; ++image) {
    const auto logits = single.run({pixels.data() + image * 3 * 12 * 20, 1, 12, 20});
    expected.insert(expected.end(), logits.begin(), logits.end());
  }
  for (const int threads : {1, 2, 3, 5}) {
    Session session(model, {.threads = threads});
    for (const std::int64_t count : {1, 2, 3, 4, 7, 36, 37}) {
      SCOPED_TRACE(std::to_string(count) + " images, " + std::to_string(threads) + " threads");
      EXPECT_EQ(session.run({pixels.data(), count, 12, 20}),
                std::vector<float>(expected.begin(), expected.begin() + count * 10));
    }
  }
}

TEST(Session, NeedsNoMoreMemoryForMoreImagesThanItsThreadsHave) {
  const SavedModel saved(small_config("sape2-rel-k"));
  Session session(Model::open(saved.path), {.threads = 2});
  session.prepare(100, 12, 20);
  const std::size_t bytes = session.bytes();
  session.prepare(1000, 12, 20);
  EXPECT_LT(session.bytes(), 2 * bytes);
}

TEST(Session, RefusesImagesThatDoNotFit) {
  const SavedModel saved(small_config("none"));
  Session session(Model::open(saved.path));
  const std::vector<float> pixels(3 * 12 * 20);
  std::vector<float> logits(10);
  EXPECT_EQ(error_text([&] {
              session.run({pixels.data(), 1, 13, 20}, logits);
            }),
            "images are 13×20, which patches of 4×4 do not divide");
  EXPECT_EQ(error_text([&] {
              session.run({pixels.data(), 1, 0, 20}, logits);
            }),
            "images are 0×20, which patches of 4×4 do not divide");
  EXPECT_EQ(error_text([&] {
              session.run({nullptr, 1, 12, 20}, logits);
            }),
            "the images have no pixels: expected 1×3×12×20 numbers");
  EXPECT_EQ(error_text([&] {
              session.run({pixels.data(), -1, 12, 20}, logits);
            }),
            "the batch has -1 images, expected a number from 0 to 1048576");
  EXPECT_EQ(error_text([&] {
              session.run({pixels.data(), 1, 12, 20}, std::span(logits).first(9));
            }),
            "there is room for 9 logits, expected 10: one for each image and class");
  EXPECT_EQ(error_text([&] { Session(Model::open(saved.path), {.threads = -1}); }),
            "threads is -1, expected 0 for one on each core, or a number from 1");
  EXPECT_TRUE(session.run({nullptr, 0, 12, 20}).empty());
}

TEST(Session, TakesItsMemoryAheadWhenAsked) {
  const SavedModel saved(small_config("sape2-rel-k"));
  Session session(Model::open(saved.path), {.threads = 1});
  session.prepare(3, 12, 20);
  const std::size_t bytes = session.bytes();
  EXPECT_GT(bytes, 3U * 18 * 48 * 5 * sizeof(float));
  const std::vector<float> pixels(3 * 3 * 12 * 20);
  std::vector<float> logits(30);
  const std::int64_t before = allocations;
  session.run({pixels.data(), 3, 12, 20}, logits);
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(session.bytes(), bytes);
}

TEST(ThreadPool, CoversEveryRangeOnce) {
  for (const int threads : {1, 2, 5}) {
    const ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t count : {0, 1, 2, 7, 100}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      pool.parallel_for(count, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
      });
      for (const auto& times : seen) EXPECT_EQ(times, 1);
    }
  }
}

TEST(ThreadPool, HandsAnErrorToTheCaller) {
  const ThreadPool pool(3);
  const auto fail = [](std::int64_t begin, std::int64_t end) {
    if (begin <= 5 && 5 < end) throw Error("the fifth failed");
  };
  EXPECT_EQ(error_text([&] { pool.parallel_for(50, fail); }), "the fifth failed");
  std::atomic<std::int64_t> sum{0};
  pool.parallel_for(10, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
  EXPECT_EQ(sum, 10);
}

}  // namespace
}  // namespace sape2::infer::testing
