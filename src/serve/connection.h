#pragma once

#include "sape2/serve/server.h"

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

namespace sape2::serve {

/// One connection, with an end to everything: a request has to arrive, and an answer to be taken,
/// within a time; a request is of bounded length; and when the server stops, waiting ends.
class Connection : public httplib::Stream {
 public:
  Connection(socket_t socket, const Limits& limits, const std::atomic<bool>& stopping)
      : socket_(socket), limits_(limits), stopping_(stopping) {}

  /// Waits for the first byte of the next request; false: the connection has ended.
  bool next_request();
  /// Whether the answer just written was a refusal, after which the rest is not worth reading.
  bool refused() const { return status_ >= 400; }
  /// Takes what the client is still sending, for a while, so that it sees the answer.
  void drain();

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* data, size_t size) override;
  ssize_t write(const char* data, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;
  /// Whether the socket becomes ready before `deadline`.
  bool wait(short events, Clock::time_point deadline, bool end_on_stop) const;
  bool fill(Clock::time_point deadline);

  socket_t socket_;
  const Limits& limits_;
  const std::atomic<bool>& stopping_;
  std::string buffer_;
  std::size_t taken_ = 0;
  std::size_t allowance_ = 0;
  Clock::time_point read_deadline_, write_deadline_;
  bool answering_ = false;
  int status_ = 0;
};

/// httplib's server over such connections, at most so many at once; further ones are told so.
class BoundedServer : public httplib::Server {
 public:
  explicit BoundedServer(const Limits& limits);

  /// Takes the port, or any for 0; returns it, or −1.
  int bind(const std::string& host, int port);
  /// Answers until stop_all(), which may come first.
  void run();
  void stop_all();

 private:
  bool process_and_close_socket(socket_t socket) override;

  const Limits limits_;
  std::mutex mutex_;
  bool started_ = false, ended_ = false;  // behind the mutex
  std::atomic<bool> stopping_ = false;
  std::atomic<std::size_t> clients_ = 0;
};

}  // namespace sape2::serve
