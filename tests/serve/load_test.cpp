// Many clients at once: no failure, bounded memory. SAPE2_LOAD_SECONDS=30 runs it for longer.
#include "serve/served.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

namespace sape2::serve::test {
namespace {

constexpr int kClients = 200;
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

std::string hover(int client, int step) {
  const int patch = (client * 7 + step) % 64;
  return "GET /api/rows?model=" + std::to_string(client % 2) +
         "&image=data:" + std::to_string((client + step / 16) % 20) +
         "&what=" + (client % 2 ? "attention" : "bias") + "&y=" + std::to_string(patch / 8) +
         "&x=" + std::to_string(patch % 8) + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
}

TEST(Load, TwoHundredClientsAtOnce) {
  const Served served;
  const std::string upload = png_file(64, 64);
  get(served.port(), "/api/rows?model=0&image=data:0&what=bias&y=0&x=0");
  const double before = resident_mib();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds_asked_for());
  std::atomic<int> answered = 0, failed = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      try {
        RawClient client(served.port());
        int step = 0;
        do {
          if (step % 50 == 25) {
            client.send("POST /api/images HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " +
                        std::to_string(upload.size()) + "\r\n\r\n" + upload);
          } else {
            client.send(hover(i, step));
          }
          ++(client.receive().status == 200 ? answered : failed);
          ++step;
        } while (std::chrono::steady_clock::now() < end);
      } catch (const std::exception&) {
        ++failed;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const double growth = resident_mib() - before;
  EXPECT_EQ(failed, 0);
  EXPECT_GE(answered, kClients);
  EXPECT_LT(growth, kMostGrowth);
  std::printf("%d clients, %d s: %d answers, %d failures, memory grew by %.0f MiB\n", kClients,
              seconds_asked_for(), answered.load(), failed.load(), growth);
}

}  // namespace
}  // namespace sape2::serve::test
