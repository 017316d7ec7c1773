#pragma once

#include "serve/served.h"

#include <atomic>
#include <cstdint>
#include <random>
#include <string>

namespace sape2::serve::test {

/// A client that means harm, in one of the ways that were tried on the server.
class HostileClient {
 public:
  /// `large`: an uploaded picture of some megabytes.
  HostileClient(int port, std::string large, std::uint32_t seed);

  /// Does one bad thing of kind `way` (any number), or stops early once `over`. Returns how many
  /// requests it sent.
  int act(int way, const std::atomic<bool>& over);

 private:
  int send_slowly(const std::atomic<bool>& over);
  int take_nothing(const std::atomic<bool>& over);
  int abandon();
  int send_nonsense();
  int ask_for_ranges();

  std::string get(const std::string& path, const std::string& more = "") const;

  int port_;
  std::string large_;
  std::mt19937 random_;
};

}  // namespace sape2::serve::test
