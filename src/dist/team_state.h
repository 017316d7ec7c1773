#pragma once

#include "sape2/dist/team.h"

#include "dist/meeting.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace sape2::dist {

/// Who sits at a rank.
struct Member {
  std::string host;
  int64_t process = 0;
  std::string version;
  std::string gpus;  // those it may see: CUDA_VISIBLE_DEVICES
};

/// What the threads of a team share.
struct Team::State {
  Place place;
  Patience patience;
  Loss loss = Loss::ends_all;
  Meeting meeting;
  std::vector<Member> members;  // filled before the threads start

  std::atomic<int64_t> exchanges{0};

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::string> failure;  // the first sentence
  std::vector<bool> lost;              // a rank; under Loss::tolerated
  bool store_is_lost = false;          // whoever asked it would wait for ever
  bool stopping = false;               // the threads are to end
  int running = 0;                     // threads
  bool left = false;

  std::optional<std::string> find(const std::string& name) const;
  std::string name_of(int rank) const;
  std::string store_for_people() const;
  /// For this process.
  void fail(const std::string& sentence);
  void fail_without_store(const std::string& sentence);
  /// For all of them; the first counts.
  void announce(const std::string& sentence);
};

/// Starts the two threads of a team. One gives signs of life and looks for those of others; the
/// other makes sure that the first is not stuck, and ends the process if it does not end by itself
/// once somebody was lost. They count their own turns instead of reading clocks: a machine that
/// was suspended has lost nobody.
void start_signs_of_life(const std::shared_ptr<Team::State>& state);

}  // namespace sape2::dist
