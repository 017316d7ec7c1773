#include "sape2/base/in_quotes.h"

#include "dist/team_state.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace sape2::dist {
namespace {

constexpr auto kTurn = std::chrono::milliseconds(500);
constexpr double kTurnsASecond = 2;
// Once a connection broke, somebody was lost: little silence is enough to tell who.
constexpr int64_t kTurnsAfterAlarm = 6;
// Where losses are tolerated everybody looks at everybody, so more seldom.
constexpr int64_t kTurnsBetweenLooks = 4;
// From a failure to the end by force.
constexpr int64_t kTurnsOfGrace = 20;

int64_t turns(double seconds) {
  return std::max<int64_t>(2, static_cast<int64_t>(seconds * kTurnsASecond));
}

// What is known of another rank.
struct Seen {
  std::string sign;
  int64_t exchanges = 0;
  int64_t silent = 0;  // turns
};

class Watch {
 public:
  explicit Watch(std::shared_ptr<Team::State> state)
      : state_(std::move(state)), seen_(static_cast<std::size_t>(state_->place.size)) {}

  void turn() {
    ++turn_;
    give_sign();
    if (const auto failure = state_->find("failure")) return state_->fail(*failure);
    if (state_->loss == Loss::tolerated) {
      if (turn_ % kTurnsBetweenLooks == 0) look_at_all();
    } else if (state_->place.rank == 0) {
      look_at_all();
      name_the_silent();
      name_the_late();
    } else if (!state_->meeting.here && state_->place.store_is_there) {
      look_at(0);
      name_the_silent();
    }
  }

 private:
  void give_sign() {
    const std::string exchanges = std::to_string(state_->exchanges.load());
    state_->meeting.store->set("sign/" + std::to_string(state_->place.rank),
                               bytes_of(exchanges + " " + std::to_string(turn_)));
  }

  void look_at(int rank) {
    Seen& seen = seen_[static_cast<std::size_t>(rank)];
    const std::string sign = state_->find("sign/" + std::to_string(rank)).value_or("");
    const int64_t passed = state_->loss == Loss::tolerated ? kTurnsBetweenLooks : 1;
    seen.silent = sign == seen.sign ? seen.silent + passed : 0;
    seen.sign = sign;
    std::from_chars(sign.data(), sign.data() + sign.size(), seen.exchanges);
  }

  void look_at_all() {
    for (int rank = 0; rank < state_->place.size; ++rank) {
      if (rank != state_->place.rank) look_at(rank);
    }
    if (state_->loss != Loss::tolerated) return;
    const std::lock_guard lock(state_->mutex);
    for (std::size_t rank = 0; rank < seen_.size(); ++rank) {
      state_->lost[rank] = seen_[rank].silent > turns(state_->patience.silence);
    }
  }

  void name_the_silent() {
    if (!alarm_) alarm_ = state_->find("alarm").has_value();
    const int64_t most = alarm_ ? kTurnsAfterAlarm : turns(state_->patience.silence);
    const auto quietest = std::ranges::max_element(seen_, {}, &Seen::silent);
    if (quietest->silent < most) return;
    const auto rank = static_cast<int>(quietest - seen_.begin());
    state_->announce(state_->name_of(rank) +
                     (alarm_
                          ? " has ended or was killed"
                          : " has given no sign of life for " +
                                std::to_string(static_cast<int>(state_->patience.silence)) +
                                " s: it was killed or stopped, or its machine cannot be reached"));
  }

  // Those that live but keep the others waiting.
  void name_the_late() {
    int64_t least = state_->exchanges, most = least;
    int late = 0;
    for (int rank = 1; rank < state_->place.size; ++rank) {
      const int64_t count = seen_[static_cast<std::size_t>(rank)].exchanges;
      if (count < least) late = rank;
      least = std::min(least, count);
      most = std::max(most, count);
    }
    late_turns_ = least == least_exchanges_ && most > least ? late_turns_ + 1 : 0;
    least_exchanges_ = least;
    if (late_turns_ < turns(state_->patience.exchange)) return;
    state_->announce(state_->name_of(late) + " hangs: the others have waited for it for " +
                     std::to_string(static_cast<int>(state_->patience.exchange)) + " s");
  }

  std::shared_ptr<Team::State> state_;
  std::vector<Seen> seen_;
  int64_t turn_ = 0;
  bool alarm_ = false;
  int64_t least_exchanges_ = 0, late_turns_ = 0;
};

// Returns false when the threads are to end.
bool pause(Team::State& state) {
  std::unique_lock lock(state.mutex);
  state.changed.wait_for(lock, kTurn, [&] { return state.stopping; });
  return !state.stopping;
}

void ended(Team::State& state) {
  const std::lock_guard lock(state.mutex);
  --state.running;
  state.changed.notify_all();
}

void watch(const std::shared_ptr<Team::State>& state, std::atomic<int64_t>& turn) {
  Watch watch(state);
  try {
    do {
      watch.turn();
      ++turn;
    } while (pause(*state));
  } catch (const std::exception&) {
    // A connection that breaks is the only thing that can go wrong with a store.
    state->fail_without_store(
        state->store_for_people() + " is gone" +
        (state->place.store_is_there ? "" : ": " + state->name_of(0) + " has ended"));
  }
  ended(*state);
}

void guard(const std::shared_ptr<Team::State>& state, const std::atomic<int64_t>& turn) {
  int64_t last = 0, stuck = 0, since_failure = 0;
  while (pause(*state)) {
    const int64_t now = turn;
    stuck = now == last ? stuck + 1 : 0;
    last = now;
    std::optional<std::string> failure;
    {
      const std::lock_guard lock(state->mutex);
      failure = state->failure;
    }
    if (!failure && stuck > turns(state->patience.silence)) {
      state->fail_without_store(
          state->store_for_people() + " has not answered for " +
          std::to_string(static_cast<int>(state->patience.silence)) + " s" +
          (state->place.store_is_there
               ? ""
               : ": " + state->name_of(0) + " was stopped, or cannot be reached"));
    }
    if (!failure || state->loss == Loss::tolerated) continue;
    if (++since_failure < kTurnsOfGrace) continue;
    // The main thread waits for a GPU or a disk that will not answer.
    std::fprintf(stderr, "sape2: %s\n", printable(*failure).c_str());
    std::_Exit(EXIT_FAILURE);
  }
  ended(*state);
}

}  // namespace

void start_signs_of_life(const std::shared_ptr<Team::State>& state) {
  state->running = 2;
  auto turn = std::make_shared<std::atomic<int64_t>>(0);
  std::thread([state, turn] { watch(state, *turn); }).detach();
  std::thread([state, turn] { guard(state, *turn); }).detach();
}

}  // namespace sape2::dist
