// Clients that ask for much and go.
#include "serve/served.h"
#include "support/own_time.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

namespace sape2::serve::test {
namespace {

using Clock = std::chrono::steady_clock;

// No two alike, so that none is shared.
std::string large_figure(const Served& served, int number) {
  return "GET /api/figure?model=0&image=data:" + std::to_string(number % 20) +
         "&what=attention&size=128&y=0&x=" + std::to_string(number % 32) + " HTTP/1.1\r\n" +
         served.host_line() + "\r\n";
}

TEST(Abandoned, AreDropped) {
  const Served served;
  const auto once_begin = Clock::now();
  RawClient once(served.port());
  once.send(large_figure(served, 0));
  EXPECT_EQ(once.receive().status, 200);
  const auto once_time = Clock::now() - once_begin;
  constexpr int kAbandoned = 60;
  for (int i = 1; i <= kAbandoned; ++i) RawClient(served.port()).send(large_figure(served, i));
  const auto begin = Clock::now();
  RawClient honest(served.port());
  honest.send(large_figure(served, kAbandoned + 1));
  EXPECT_EQ(honest.receive().status, 200);
  // Its own time and what was under way, rather than that of sixty.
  EXPECT_LT(Clock::now() - begin, 8 * once_time);
}

TEST(Abandoned, QuickRequestsPassLongOnes) {
  const Served served;
  get(served.port(), "/api/rows?model=0&image=data:0&what=bias&y=0&x=0");
  std::vector<std::unique_ptr<RawClient>> waiting;
  const auto begin = Clock::now();
  for (int i = 0; i < 20; ++i) {
    waiting.push_back(std::make_unique<RawClient>(served.port()));
    waiting.back()->send(large_figure(served, i));
  }
  EXPECT_EQ(get(served.port(), "/api/rows?model=0&image=data:0&what=bias&y=0&x=1").status, 200);
  const auto quick = Clock::now() - begin;
  for (const auto& client : waiting) EXPECT_EQ(client->receive().status, 200);
  EXPECT_LT(quick, (Clock::now() - begin) / 4);
}

TEST(Abandoned, AFullQueueIsToldToComeBack) {
  Limits limits;
  limits.waiting = 2;
  const Served served(limits);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<RawClient>(served.port()));
    clients.back()->send(large_figure(served, i));
  }
  int answered = 0, refused = 0;
  for (const auto& client : clients) {
    const Reply reply = client->receive();
    answered += reply.status == 200;
    refused += reply.status == 503 && reply.head.find("Retry-After: 1") != std::string::npos;
  }
  EXPECT_EQ(answered + refused, 20);
  EXPECT_GE(answered, 2);
  EXPECT_GE(refused, 1);
}

TEST(Abandoned, StopDoesNotWaitForThem) {
  auto served = std::make_unique<Served>();
  const std::string name = post(served->port(), "/api/images", png_file(900, 900)).json()["image"];
  RawClient deaf(served->port());  // takes nothing of a large answer
  deaf.send("GET /api/picture?image=" + name + " HTTP/1.1\r\n" + served->host_line() + "\r\n");
  std::vector<std::unique_ptr<RawClient>> waiting;
  for (int i = 0; i < 30; ++i) {
    waiting.push_back(std::make_unique<RawClient>(served->port()));
    waiting.back()->send(large_figure(*served, i));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const testing::OwnTime stop;
  served.reset();
  EXPECT_LT(stop.seconds(), kLongestStop);
  EXPECT_LT(stop.wall_seconds(), kLongestStopAnywhere);
}

}  // namespace
}  // namespace sape2::serve::test
