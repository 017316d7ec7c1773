#pragma once

#include "sape2/serve/server.h"

#include "serve/admission.h"
#include "serve/event.h"
#include "serve/workers.h"

#include <httplib.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

namespace sape2::serve {

/// What all connections of a server look at.
struct Crowd {
  Event stop;                          ///< the server stops
  std::atomic<bool> stopping = false;  ///< the same, to be asked for
  std::atomic<std::size_t> open = 0;   ///< connections
};

/// One connection, with an end to everything: a request has to arrive, and an answer to be taken,
/// within a time; a request is of bounded length; and when the server stops, waiting ends.
class Connection : public httplib::Stream, public Waiter {
 public:
  Connection(socket_t socket, const Limits& limits, const Crowd& crowd)
      : socket_(socket), limits_(limits), crowd_(crowd) {}

  /// Waits for the head of the next request and checks it; false: the connection has ended. A head
  /// that is not understood has been answered then.
  bool next_request();
  /// Where the request came from, as its head tells.
  const RequestSource& source() const { return source_; }
  /// Whether the answer just written was a refusal, after which the rest is not worth reading.
  bool refused() const { return status_ >= 4; }
  /// Writes a refusal of whole_refusal(), and takes what the client is still sending, for a while,
  /// so that it sees the answer.
  void refuse(std::string_view refusal);
  void drain();
  /// Keeps something until the answer has been taken.
  void hold(std::shared_ptr<const void> something) { held_ = std::move(something); }
  void release() { held_.reset(); }

  // The client waits for an answer; it loses interest by closing its end.
  bool wait(Clock::time_point deadline) override;
  void wake() noexcept override { woken_.set(); }

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* data, size_t size) override;
  ssize_t write(const char* data, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  bool ready(short events, Clock::time_point deadline) const;
  bool fill(Clock::time_point deadline);
  bool fill_patiently(Clock::time_point since, Clock::time_point deadline);
  bool out_of_patience(Clock::time_point since) const;
  bool writable_in_time();

  socket_t socket_;
  const Limits& limits_;
  const Crowd& crowd_;
  Event woken_;
  std::string buffer_;
  std::size_t taken_ = 0;
  std::size_t allowance_ = 0;
  RequestSource source_;
  Clock::time_point read_deadline_, write_deadline_;
  bool answering_ = false;
  int status_ = 0;  ///< first digit
  std::shared_ptr<const void> held_;
};

}  // namespace sape2::serve
