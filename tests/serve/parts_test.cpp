#include "serve/lru_cache.h"
#include "serve/worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

namespace sape2::serve {
namespace {

TEST(LruCache, DropsWhatWasNotUsedForLongest) {
  LruCache<int> cache(30);
  for (int i = 0; i < 3; ++i) cache.put(std::to_string(i), std::make_shared<int>(i), 10);
  EXPECT_EQ(*cache.find("0"), 0);
  cache.put("3", std::make_shared<int>(3), 10);
  EXPECT_EQ(cache.find("1"), nullptr);
  EXPECT_NE(cache.find("0"), nullptr);
  EXPECT_EQ(cache.bytes(), 30U);
  cache.put("0", std::make_shared<int>(9), 5);
  EXPECT_EQ(cache.bytes(), 25U);
  cache.put("large", std::make_shared<int>(1), 100);
  EXPECT_EQ(cache.size(), 1U);
}

TEST(Worker, RunsOneAfterAnotherAndPassesErrorsOn) {
  Worker worker(10);
  EXPECT_EQ(worker.run([] { return 5; }), 5);
  EXPECT_THROW(worker.run([]() -> int { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_EQ(worker.run([] { return 6; }), 6);
}

TEST(Worker, RefusesWhatItHasNoRoomFor) {
  Worker worker(0);
  EXPECT_THROW(worker.run([] { return 1; }), Busy);
}

TEST(Worker, FinishesWhatWaitsBeforeItEnds) {
  std::latch started(1);
  std::vector<std::thread> askers;
  std::atomic<int> done = 0;
  {
    Worker worker(10);
    askers.emplace_back([&] {
      worker.run([&] {
        started.count_down();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        ++done;
      });
    });
    started.wait();
  }
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace sape2::serve
