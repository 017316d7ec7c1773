#pragma once

#include "sape2/base/error.h"
#include "sape2/dist/place.h"

#include <memory>
#include <optional>
#include <string>

namespace sape2::dist {

/// Another process of the team has ended, or hangs. The sentence names its rank.
class PeerLost : public Error {
 public:
  using Error::Error;
};

/// How long processes wait for others, in seconds.
struct Patience {
  double join = 300;      ///< until all have arrived
  double silence = 15;    ///< for a sign of life, which each gives twice a second
  double exchange = 600;  ///< for one that is alive but does not reach an exchange

  /// These, unless `SAPE2_JOIN_SECONDS`, `SAPE2_SILENCE_SECONDS` and `SAPE2_EXCHANGE_SECONDS` say
  /// otherwise.
  static Patience from_environment();
};

/// What becomes of the others when one is lost.
enum class Loss {
  ends_all,   ///< they cannot go on without it
  tolerated,  ///< they can; alive() tells who is left
};

/// Processes that know of each other: they meet in a store of LibTorch (a table of short texts
/// that one process or the launcher keeps), give signs of life there, and learn from it who was
/// lost. Under Loss::ends_all a process that dies is named within 5 seconds of the first broken
/// connection, and one that stopped within Patience::silence.
class Team {
 public:
  /// Waits until all have arrived. Throws Error with one sentence if the address is wrong, not all
  /// arrive, or versions differ.
  static std::unique_ptr<Team> join(const Place& place, const Patience& patience, Loss loss);
  /// Leaves without waiting: the others learn that this process has ended.
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  const Place& place() const;
  const Patience& patience() const;
  int rank() const { return place().rank; }
  int size() const { return place().size; }
  bool leads() const { return rank() == 0; }
  /// A rank for people: "rank 2 (host node7, process 4711)".
  std::string name_of(int rank) const;

  /// Texts that all see, under names.
  void put(const std::string& name, const std::string& text);
  std::optional<std::string> find(const std::string& name);
  /// Waits for it; throws PeerLost when somebody is lost meanwhile.
  std::string await(const std::string& name);
  /// Sets it if it is `expected` ("": if there is none). Returns whether it is `text` now.
  bool replace(const std::string& name, const std::string& expected, const std::string& text);

  /// Throws PeerLost if somebody was lost.
  void check() const;
  /// Whether a rank gives signs of life.
  bool alive(int rank) const;
  /// Tells all that this process ends, and why; the first such sentence counts.
  void give_up(const std::string& reason);
  /// Called when a connection broke: waits until it is known who was lost, and throws PeerLost.
  [[noreturn]] void find_lost(const std::string& symptom);
  /// Called at each exchange, so that one who does not come can be told from those who wait.
  void count_exchange();

  /// The good end: waits until all others are here too, so that the store outlives its users.
  void leave();

  struct State;

 private:
  friend class Group;
  explicit Team(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// Whether threads of a lost team may still wait in a library: the process then has to end with
/// std::_Exit(), once everything is written.
bool must_end_at_once();

}  // namespace sape2::dist
