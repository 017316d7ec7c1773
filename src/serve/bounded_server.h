#pragma once

#include "sape2/serve/server.h"

#include "serve/connection.h"

#include <httplib.h>

#include <string>

namespace sape2::serve {

/// httplib's routing and writing of answers over connections of our own, at most so many at once;
/// further ones are told so. The library's own loop of accept() ends the server on errors that
/// pass, queues connections without bound, and knows neither deadlines nor clients that have gone.
class BoundedServer : public httplib::Server {
 public:
  explicit BoundedServer(const Limits& limits);
  ~BoundedServer() override;

  /// Takes the port, or any for 0; returns it, or −1.
  int bind(const std::string& host, int port);
  /// Whether the address taken is one that only this machine reaches.
  bool listens_only_here() const;
  /// Answers until stop_all(), which may come first.
  void run();
  void stop_all();

  /// The connection that this thread is answering; for handlers.
  static Connection& current();

 private:
  void accept_one(httplib::TaskQueue& threads);
  void serve(socket_t socket, bool admitted);

  const Limits limits_;
  Crowd crowd_;
};

}  // namespace sape2::serve
