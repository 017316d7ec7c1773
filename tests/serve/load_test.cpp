// Two hundred clients at once, a tenth of them hostile: every honest answer right, bounded memory,
// and an end at once in the middle of it. SAPE2_LOAD_SECONDS=30 runs it for longer.
#include "serve/hostile_client.h"
#include "serve/served.h"
#include "support/own_time.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <thread>
#include <vector>

namespace sape2::serve::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kClients = 200, kHostile = 20;
constexpr int kImages = 4, kPatches = 64;
constexpr double kMostGrowth = 600;  // MiB: what the limits allow to be kept, and threads' stacks

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

int seconds_asked_for() {
  const char* text = std::getenv("SAPE2_LOAD_SECONDS");
  return text == nullptr ? 2 : std::max(1, std::atoi(text));
}

std::string hover(int model, int image, int patch) {
  return "/api/rows?model=" + std::to_string(model) + "&image=data:" + std::to_string(image) +
         "&what=" + (model ? "attention" : "bias") + "&y=" + std::to_string(patch / 8) +
         "&x=" + std::to_string(patch % 8);
}

const std::string kFigure = "/api/figure?model=0&image=data:0&what=bias&y=1&x=1&format=png";

/// What the right answers are, by path.
using Answers = std::map<std::string, std::string>;

Answers right_answers(int port) {
  Answers answers;
  for (int model = 0; model < 2; ++model) {
    for (int image = 0; image < kImages; ++image) {
      for (int patch = 0; patch < kPatches; ++patch) {
        const std::string path = hover(model, image, patch);
        answers[path] = get(port, path).body;
      }
    }
  }
  answers[kFigure] = get(port, kFigure).body;
  return answers;
}

struct Counts {
  std::atomic<int> right = 0, wrong = 0, told_to_wait = 0, hostile = 0;
  std::atomic<bool> over = false;      // clients are to end
  std::atomic<bool> stopping = false;  // what happens now is the server's end
};

// A browser's page: one connection, one request after another, and again where it was told to wait.
class HonestClient {
 public:
  HonestClient(int port, const Answers& answers, Counts& counts, int number)
      : port_(port), answers_(answers), counts_(counts), number_(number) {}

  void run() {
    for (int step = 0; !counts_.over && !counts_.stopping; ++step) {
      if (step % 50 == 25) {
        ask("POST /api/images HTTP/1.1\r\n" + host_ +
                "Content-Length: " + std::to_string(upload_.size()) + "\r\n\r\n" + upload_,
            [](const Reply& reply) { return reply.json().value("height", 0) == 64; });
        continue;
      }
      const std::string path = number_ < 5 && step % 100 == 50
                                   ? kFigure
                                   : hover(number_ % 2, (number_ + step / 16) % kImages,
                                           (number_ * 7 + step) % kPatches);
      ask("GET " + path + " HTTP/1.1\r\n" + host_ + "\r\n",
          [&](const Reply& reply) { return reply.body == answers_.at(path); });
    }
  }

 private:
  template <typename Right>
  void ask(const std::string& request, const Right& right) {
    for (;;) {
      Reply reply;
      try {
        if (!client_) client_ = std::make_unique<RawClient>(port_);
        client_->send(request);
        reply = client_->receive();
      } catch (const std::runtime_error&) {
        client_.reset();
      }
      if (counts_.stopping) return;
      if (reply.status != 503) {
        ++(reply.status == 200 && right(reply) ? counts_.right : counts_.wrong);
        if (reply.status != 200) client_.reset();
        return;
      }
      ++counts_.told_to_wait;
      client_.reset();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }

  int port_;
  const std::string host_ = "Host: 127.0.0.1:" + std::to_string(port_) + "\r\n";
  const Answers& answers_;
  Counts& counts_;
  int number_;
  std::unique_ptr<RawClient> client_;
  const std::string upload_ = png_file(64, 64);
};

TEST(Load, TwoHundredClientsATenthOfThemHostile) {
  auto served = std::make_unique<Served>();
  const int port = served->port();
  const Answers answers = right_answers(port);
  const std::string large = post(port, "/api/images", png_file(1000, 1000)).json()["image"];
  const double before = resident_mib();
  Counts counts;
  std::atomic<double> peak = before;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients - kHostile; ++i) {
    clients.emplace_back([&, i] { HonestClient(port, answers, counts, i).run(); });
  }
  for (int i = 0; i < kHostile; ++i) {
    clients.emplace_back([&, i] {
      HostileClient client(port, large, static_cast<std::uint32_t>(i));
      while (!counts.over) counts.hostile += client.act(i, counts.over);
    });
  }
  const auto end = Clock::now() + std::chrono::seconds(seconds_asked_for());
  while (Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    peak = std::max(peak.load(), resident_mib());
  }
  counts.stopping = true;
  const testing::OwnTime stop;
  served.reset();  // with everybody still asking
  const double stop_seconds = stop.seconds(), stop_wall = stop.wall_seconds();
  counts.over = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(counts.wrong, 0);
  EXPECT_GE(counts.right, kClients - kHostile);
  EXPECT_GE(counts.hostile, kHostile);
  EXPECT_LT(peak - before, kMostGrowth);
  EXPECT_LT(stop_seconds, kLongestStop);
  EXPECT_LT(stop_wall, kLongestStopAnywhere);
  std::printf(
      "%d clients, %d of them hostile, %d s: %d right answers, %d wrong, %d told to wait, "
      "%d hostile requests; memory grew by %.0f MiB at most; stopped in %.2f s (%.2f s without "
      "other programs)\n",
      kClients, kHostile, seconds_asked_for(), counts.right.load(), counts.wrong.load(),
      counts.told_to_wait.load(), counts.hostile.load(), peak - before, stop_wall, stop_seconds);
}

}  // namespace
}  // namespace sape2::serve::test
