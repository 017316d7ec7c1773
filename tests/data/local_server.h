#pragma once

#include "data/files.h"

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace sape2::data::test {

/// A tiny HTTP server on this machine that can be made to misbehave.
class LocalServer {
 public:
  LocalServer();
  ~LocalServer();

  std::string url(const std::string& name) const;

  std::map<std::string, Bytes> files;
  std::atomic<bool> knows_ranges{true};
  std::atomic<int> cuts{0};                ///< so many answers end after half of what is asked
  std::atomic<std::size_t> bytes_sent{0};  ///< of bodies
  std::atomic<int> range_requests{0};

 private:
  void serve();
  void answer(int connection);

  int socket_ = -1;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace sape2::data::test
