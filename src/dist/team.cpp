#include "sape2/dist/team.h"

#include "sape2/base/in_quotes.h"
#include "sape2/version.h"

#include "dist/team_state.h"

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace sape2::dist {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr auto kPoll = std::chrono::milliseconds(20);
constexpr double kLinger = 3;  // of rank 0, for others to read why it ends
constexpr double kLongestLeave = 60;
constexpr double kMostPatience = 1e6;
constexpr int kNamedMissing = 8;

std::atomic<bool> left_something{false};

double seconds_from(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  const std::string_view value(text);
  double seconds = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  const bool whole = error == std::errc() && end == value.data() + value.size();
  if (!whole || !(seconds >= 1 && seconds <= kMostPatience)) {  // a NaN, too
    throw Error("the variable " + std::string(name) + " is " + in_quotes(value) +
                ", expected seconds, at least 1");
  }
  return seconds;
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Waits until `done`; false if it takes longer.
template <typename Done>
bool wait_until(double seconds, const Done& done) {
  const auto deadline = Clock::now() + Seconds(seconds);
  while (!done()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

std::string member_key(int rank) {
  return "member/" + std::to_string(rank);
}

Member member_from(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  return {json.value("host", ""), json.value("process", int64_t{0}), json.value("version", ""),
          json.value("gpus", "")};
}

void introduce(Team::State& state) {
  c10d::Store& store = *state.meeting.store;
  const Place& place = state.place;
  if (store.add("taken/" + std::to_string(place.rank), 1) > 1) {
    throw Error("two processes at " + meeting_point(place) + " are rank " +
                std::to_string(place.rank) +
                "; each needs a rank of its own, or another job uses this port: set MASTER_PORT");
  }
  const char* gpus = std::getenv("CUDA_VISIBLE_DEVICES");
  const Json self{{"host", host_name()},
                  {"process", ::getpid()},
                  {"version", SAPE2_VERSION},
                  {"gpus", gpus == nullptr ? "" : gpus}};
  store.set(member_key(place.rank), bytes_of(self.dump()));
}

void await_others(Team::State& state) {
  const Place& place = state.place;
  std::vector<std::string> keys;
  for (int rank = 0; rank < place.size; ++rank) keys.push_back(member_key(rank));
  c10d::Store& store = *state.meeting.store;
  if (wait_until(state.patience.join, [&] { return store.check(keys); })) {
    for (const std::string& key : keys) {
      state.members.push_back(member_from(text_of(store.get(key))));
    }
    return;
  }
  std::string missing;
  int count = 0;
  for (int rank = 0; rank < place.size; ++rank) {
    if (store.check({keys[static_cast<std::size_t>(rank)]})) continue;
    if (count < kNamedMissing) missing += (count == 0 ? "" : ", ") + std::to_string(rank);
    ++count;
  }
  if (count > kNamedMissing) missing += " and " + std::to_string(count - kNamedMissing) + " more";
  throw Error("not all " + std::to_string(place.size) + " processes came to " +
              meeting_point(place) + " within " +
              std::to_string(static_cast<int>(state.patience.join)) + " s; missing: rank " +
              missing);
}

void compare_versions(const Team::State& state) {
  for (int rank = 1; rank < state.place.size; ++rank) {
    const std::string& version = state.members[static_cast<std::size_t>(rank)].version;
    if (version == state.members.front().version) continue;
    throw Error(state.name_of(rank) + " runs sape2 " + version + ", but " + state.name_of(0) +
                " runs " + state.members.front().version +
                "; install the same version on all machines");
  }
}

}  // namespace

Patience Patience::from_environment() {
  Patience patience;
  patience.join = seconds_from("SAPE2_JOIN_SECONDS", patience.join);
  patience.silence = seconds_from("SAPE2_SILENCE_SECONDS", patience.silence);
  patience.exchange = seconds_from("SAPE2_EXCHANGE_SECONDS", patience.exchange);
  return patience;
}

std::optional<std::string> Team::State::find(const std::string& name) const {
  if (!meeting.store->check({name})) return std::nullopt;
  return text_of(meeting.store->get(name));
}

std::string Team::State::name_of(int rank) const {
  const std::string number = "rank " + std::to_string(rank);
  if (static_cast<std::size_t>(rank) >= members.size()) return number;
  const Member& member = members[static_cast<std::size_t>(rank)];
  return number + " (host " + member.host + ", process " + std::to_string(member.process) + ")";
}

std::string Team::State::store_for_people() const {
  return "the store at " + meeting_point(place) + " that " +
         (place.store_is_there ? "the launcher" : "rank 0") + " keeps";
}

void Team::State::fail(const std::string& sentence) {
  const std::lock_guard lock(mutex);
  if (!failure) failure = sentence;
  changed.notify_all();
}

void Team::State::fail_without_store(const std::string& sentence) {
  {
    const std::lock_guard lock(mutex);
    store_is_lost = true;
  }
  fail(sentence);
}

void Team::State::announce(const std::string& sentence) {
  const auto standing = meeting.store->compareSet("failure", {}, bytes_of(sentence));
  fail(standing.empty() ? sentence : text_of(standing));
}

Team::Team(std::shared_ptr<State> state) : state_(std::move(state)) {}

std::unique_ptr<Team> Team::join(const Place& place, const Patience& patience, Loss loss) {
  auto state = std::make_shared<State>();
  state->place = place;
  state->patience = patience;
  state->loss = loss;
  state->lost.resize(static_cast<std::size_t>(place.size));
  try {
    state->meeting = meet(state->place, patience);
    introduce(*state);
    await_others(*state);
  } catch (const Error&) {
    left_something = true;
    throw;
  } catch (const std::exception&) {
    left_something = true;
    throw PeerLost(state->store_for_people() + " went away before all processes had arrived");
  }
  start_signs_of_life(state);
  std::unique_ptr<Team> team(new Team(std::move(state)));
  try {
    compare_versions(*team->state_);
  } catch (const Error& error) {
    team->state_->announce(error.what());
    throw;
  }
  return team;
}

Team::~Team() {
  State& state = *state_;
  if (!state.left) give_up("it was stopped");
  const bool asks = [&] {
    const std::lock_guard lock(state.mutex);
    return !state.left && !state.store_is_lost;
  }();
  if (asks) {
    try {
      const int64_t others = state.place.size - 1;
      const int64_t seen = state.meeting.store->add("seen", 1) - 1;
      if (state.meeting.here && seen < others) {
        wait_until(kLinger, [&] { return state.meeting.store->add("seen", 0) > others; });
      }
    } catch (const std::exception&) {  // NOLINT: the store is gone, and nobody is left to be told
    }
  }
  std::unique_lock lock(state.mutex);
  state.stopping = true;
  state.changed.notify_all();
  const bool all =
      state.changed.wait_for(lock, std::chrono::seconds(2), [&] { return state.running == 0; });
  if (!all || !state.left) left_something = true;
}

const Place& Team::place() const {
  return state_->place;
}

const Patience& Team::patience() const {
  return state_->patience;
}

std::string Team::name_of(int rank) const {
  return state_->name_of(rank);
}

namespace {

// A store that does not answer means that somebody is lost, and soon it is known who.
template <typename Ask>
auto asking(Team& team, const Ask& ask) {
  try {
    return ask();
  } catch (const PeerLost&) {
    throw;
  } catch (const std::exception& error) {
    team.find_lost(error.what());
  }
}

}  // namespace

void Team::put(const std::string& name, const std::string& text) {
  asking(*this, [&] { state_->meeting.store->set("text/" + name, bytes_of(text)); });
}

std::optional<std::string> Team::find(const std::string& name) {
  return asking(*this, [&] { return state_->find("text/" + name); });
}

std::string Team::await(const std::string& name) {
  for (;;) {
    check();
    if (auto text = find(name)) return *text;
    std::this_thread::sleep_for(kPoll);
  }
}

bool Team::replace(const std::string& name, const std::string& expected, const std::string& text) {
  return asking(*this, [&] {
    const auto standing =
        state_->meeting.store->compareSet("text/" + name, bytes_of(expected), bytes_of(text));
    return text_of(standing) == text;
  });
}

void Team::check() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->failure) throw PeerLost(*state_->failure);
}

bool Team::alive(int rank) const {
  const std::lock_guard lock(state_->mutex);
  return !state_->lost.at(static_cast<std::size_t>(rank));
}

void Team::give_up(const std::string& reason) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->failure) return;
  }
  if (state_->loss == Loss::tolerated) return;
  try {
    state_->announce(name_of(rank()) + " has ended: " + reason);
  } catch (const std::exception&) {
    state_->fail_without_store(state_->store_for_people() + " is gone");
  }
}

void Team::find_lost(const std::string& symptom) {
  left_something = true;
  try {
    state_->meeting.store->set("alarm", bytes_of("1"));
  } catch (const std::exception&) {  // NOLINT: then the store is what was lost, as the thread finds
  }
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, Seconds(state_->patience.silence + 5),
                           [&] { return state_->failure.has_value(); });
  if (state_->failure) throw PeerLost(*state_->failure);
  throw PeerLost("the connection to another process broke: " +
                 symptom.substr(0, symptom.find('\n')));
}

void Team::count_exchange() {
  ++state_->exchanges;
}

void Team::leave() {
  State& state = *state_;
  asking(*this, [&] {
    c10d::Store& store = *state.meeting.store;
    const auto expected = [&] {
      const std::lock_guard lock(state.mutex);
      return state.place.size - std::ranges::count(state.lost, true);
    };
    store.add("left", 1);
    wait_until(kLongestLeave, [&] {
      check();
      return store.add("left", 0) >= expected();
    });
    const int64_t all = expected();
    {
      const std::lock_guard lock(state.mutex);
      state.left = state.stopping = true;
      state.changed.notify_all();
    }
    if (!state.meeting.here) {
      // Only once our own thread no longer asks.
      std::unique_lock lock(state.mutex);
      state.changed.wait_for(lock, std::chrono::seconds(2), [&] { return state.running == 0; });
      lock.unlock();
      store.add("gone", 1);
      return;
    }
    wait_until(kLinger, [&] { return store.add("gone", 0) >= all - 1; });
  });
}

bool must_end_at_once() {
  return left_something;
}

}  // namespace sape2::dist
