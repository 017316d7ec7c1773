#pragma once

#include <pthread.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>

namespace sape2::testing {

/// Seconds since this object was made, without those that other programs took: for limits that must
/// hold on a busy machine too. There are two ways to count them, and the larger result is given:
/// the time less the share of all cores that other programs used (Linux's /proc/stat), and the
/// processor time that a thread of our own got which computes without a pause. On an idle machine
/// both are the time of a clock. Work that takes too long is found at any load; for what only waits
/// too long, limit wall_seconds() as well.
class OwnTime {
 public:
  /// Of this process or of a child, which may have ended but was not yet waited for.
  explicit OwnTime(pid_t process = ::getpid()) : is_child_(process != ::getpid()) {
    const bool known = ::clock_getcpuclockid(process, &process_clock_) == 0 &&
                       ::pthread_getcpuclockid(runner_.native_handle(), &runner_clock_) == 0;
    if (!known) throw std::runtime_error("no processor time of process " + std::to_string(process));
    begin_ = now();
  }

  double wall_seconds() const {
    return std::chrono::duration<double>(Clock::now() - begin_.wall).count();
  }
  double seconds() const {
    const Reading end = now();
    const double wall = std::chrono::duration<double>(end.wall - begin_.wall).count();
    const double all = end.all_cores - begin_.all_cores, own = end.own - begin_.own;
    const double others = end.busy_cores - begin_.busy_cores - own;
    const double share = all > 0 ? std::clamp(others / all, 0.0, 1.0) : 0.0;
    return std::max(wall * (1 - share), std::min(wall, end.runner - begin_.runner));
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// Seconds; of processor time but for the clock's.
  struct Reading {
    Clock::time_point wall;
    double own = 0, runner = 0, busy_cores = 0, all_cores = 0;
  };

  static double time_of(clockid_t clock) {
    timespec time{};
    if (::clock_gettime(clock, &time) != 0) throw std::runtime_error("no processor time");
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  Reading now() const {
    Reading reading{.wall = Clock::now(), .runner = time_of(runner_clock_)};
    reading.own = time_of(CLOCK_PROCESS_CPUTIME_ID) + (is_child_ ? time_of(process_clock_) : 0);
    std::ifstream file("/proc/stat");
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, disk = 0, interrupts = 0, soft = 0, steal = 0;
    file >> name >> user >> nice >> system >> idle >> disk >> interrupts >> soft >> steal;
    const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    reading.busy_cores = (user + nice + system + interrupts + soft + steal) / ticks;
    reading.all_cores = reading.busy_cores + (idle + disk) / ticks;
    return reading;
  }

  bool is_child_;
  std::jthread runner_{[](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
    }
  }};
  clockid_t process_clock_{}, runner_clock_{};
  Reading begin_;
};

}  // namespace sape2::testing
