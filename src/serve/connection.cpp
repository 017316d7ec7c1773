#include "serve/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace sape2::serve {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSlice{100};  // how soon a stop is noticed
constexpr milliseconds kDrainTime{1000};
constexpr std::size_t kBufferBytes = 16384;
constexpr int kBacklog = 512;
constexpr std::size_t kSpareThreads = 8;  // they tell clients that there are too many
constexpr std::string_view kTooMany =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    "Connection: close\r\nContent-Length: 45\r\n\r\n"
    "{\"error\":\"too many clients; try again soon\"}\n";

}  // namespace

bool Connection::wait(short events, Clock::time_point deadline, bool end_on_stop) const {
  for (;;) {
    if (end_on_stop && stopping_) return false;
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    pollfd waiting{socket_, events, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min(left, kSlice).count()) + 1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool Connection::fill(Clock::time_point deadline) {
  if (!wait(POLLIN, deadline, /*end_on_stop=*/true)) return false;
  buffer_.resize(kBufferBytes);
  taken_ = 0;
  const ssize_t count = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
  buffer_.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return count > 0;
}

bool Connection::next_request() {
  if (taken_ == buffer_.size() && !fill(Clock::now() + limits_.idle_time)) return false;
  read_deadline_ = Clock::now() + limits_.request_time;
  allowance_ = limits_.header_bytes + limits_.body_bytes;
  answering_ = false;
  status_ = 0;
  return true;
}

void Connection::drain() {
  ::shutdown(socket_, SHUT_WR);
  const auto deadline = Clock::now() + kDrainTime;
  while (fill(deadline)) {
  }
}

bool Connection::is_readable() const {
  return taken_ < buffer_.size() || wait(POLLIN, read_deadline_, true);
}

bool Connection::is_writable() const {
  return wait(POLLOUT, Clock::now() + limits_.request_time, false);
}

ssize_t Connection::read(char* data, size_t size) {
  if (allowance_ == 0) return -1;
  if (taken_ == buffer_.size() && !fill(read_deadline_)) return -1;
  const std::size_t count = std::min({size, buffer_.size() - taken_, allowance_});
  std::memcpy(data, buffer_.data() + taken_, count);
  taken_ += count;
  allowance_ -= count;
  return static_cast<ssize_t>(count);
}

ssize_t Connection::write(const char* data, size_t size) {
  if (!answering_) {
    answering_ = true;
    write_deadline_ = Clock::now() + limits_.request_time;
    constexpr std::string_view kBegin = "HTTP/1.1 ";
    const std::string_view line(data, size);
    if (line.starts_with(kBegin) && size > kBegin.size()) {
      status_ = 100 * (line[kBegin.size()] - '0');
    }
  }
  std::size_t sent = 0;
  while (sent < size) {
    if (!wait(POLLOUT, write_deadline_, /*end_on_stop=*/false)) return -1;
    const ssize_t count = ::send(socket_, data + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      sent += static_cast<std::size_t>(count);
    } else if (count < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
      return -1;
    }
  }
  return static_cast<ssize_t>(size);
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

BoundedServer::BoundedServer(const Limits& limits) : limits_(limits) {
  new_task_queue = [this] { return new httplib::ThreadPool(limits_.clients + kSpareThreads); };
  set_payload_max_length(limits_.body_bytes);
  set_tcp_nodelay(true);
  // Not the library's SO_REUSEPORT, by which two servers would share a port without a word.
  set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
}

int BoundedServer::bind(const std::string& host, int port) {
  if (port == 0) {
    port = bind_to_any_port(host);
  } else if (!bind_to_port(host, port)) {
    port = -1;
  }
  // The library listens with a queue of five, too short for many clients at once.
  if (port >= 0) ::listen(svr_sock_, kBacklog);
  return port;
}

void BoundedServer::run() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    started_ = true;
  }
  listen_after_bind();
  const std::lock_guard lock(mutex_);
  ended_ = true;
}

void BoundedServer::stop_all() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!started_) return;
  }
  // The library only hears of a stop once it listens.
  for (;;) {
    if (is_running()) return stop();
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    std::this_thread::sleep_for(milliseconds(1));
  }
}

bool BoundedServer::process_and_close_socket(socket_t socket) {
  struct Guard {
    std::atomic<std::size_t>& clients;
    socket_t socket;
    ~Guard() {
      --clients;
      ::shutdown(socket, SHUT_RDWR);
      ::close(socket);
    }
  };
  const bool too_many = ++clients_ > limits_.clients;
  const Guard guard{clients_, socket};
  Connection connection(socket, limits_, stopping_);
  if (too_many) {
    connection.write(kTooMany.data(), kTooMany.size());
    connection.drain();
    return false;
  }
  while (!stopping_ && connection.next_request()) {
    bool closed = false;
    const bool answered = process_request(connection, /*close_connection=*/false, closed, nullptr);
    if (connection.refused()) {
      connection.drain();
      return answered;
    }
    if (!answered || closed) return answered;
  }
  return true;
}

}  // namespace sape2::serve
