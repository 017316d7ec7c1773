#include "serve/connection.h"

#include "serve/answer.h"
#include "serve/request_head.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace sape2::serve {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGlance{200};  // how often a waiting connection sees how many there are
constexpr milliseconds kPatienceInCrowd{1000};
constexpr milliseconds kDrainTime{500};
constexpr milliseconds kLastWords{300};  // for answers under way when the server stops
constexpr std::size_t kBufferBytes = 16384;
constexpr std::string_view kHeadEnd = "\r\n\r\n";

// poll() until `deadline`, which may have passed.
int poll_until(pollfd* waiting, nfds_t count, Waiter::Clock::time_point deadline) {
  constexpr milliseconds kLongest{60'000};
  for (;;) {
    const auto now = Waiter::Clock::now();
    const milliseconds left = deadline <= now ? milliseconds(0)
                              : deadline > now + kLongest
                                  ? kLongest
                                  : std::chrono::ceil<milliseconds>(deadline - now);
    const int ready = ::poll(waiting, count, static_cast<int>(left.count()));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return ready;
    if (Waiter::Clock::now() >= deadline) return 0;
  }
}

}  // namespace

// Until the socket is ready or the server stops.
bool Connection::ready(short events, Clock::time_point deadline) const {
  std::array<pollfd, 2> waiting{pollfd{socket_, events, 0},
                                pollfd{crowd_.stop.descriptor(), POLLIN, 0}};
  return !crowd_.stopping && poll_until(waiting.data(), waiting.size(), deadline) > 0 &&
         waiting[0].revents != 0;
}

bool Connection::wait(Clock::time_point deadline) {
  std::array<pollfd, 3> waiting{pollfd{socket_, POLLRDHUP, 0},
                                pollfd{woken_.descriptor(), POLLIN, 0},
                                pollfd{crowd_.stop.descriptor(), POLLIN, 0}};
  poll_until(waiting.data(), waiting.size(), deadline);
  if (waiting[1].revents != 0) woken_.clear();
  return waiting[0].revents == 0 && waiting[2].revents == 0;
}

bool Connection::fill(Clock::time_point deadline) {
  if (!ready(POLLIN, deadline)) return false;
  if (taken_ == buffer_.size()) {
    buffer_.clear();
    taken_ = 0;
  }
  const std::size_t before = buffer_.size();
  buffer_.resize(before + kBufferBytes);
  const ssize_t count = ::recv(socket_, buffer_.data() + before, kBufferBytes, MSG_DONTWAIT);
  buffer_.resize(before + (count > 0 ? static_cast<std::size_t>(count) : 0));
  return count > 0;
}

// Where every place is taken, those who only hold one make room.
bool Connection::out_of_patience(Clock::time_point since) const {
  return crowd_.open >= limits_.clients && Clock::now() > since + kPatienceInCrowd;
}

// Fills the buffer, looking around now and then.
bool Connection::fill_patiently(Clock::time_point since, Clock::time_point deadline) {
  for (;;) {
    const auto glance = std::min(deadline, Clock::now() + kGlance);
    if (ready(POLLIN, glance)) return fill(glance);
    if (crowd_.stopping || Clock::now() >= deadline || out_of_patience(since)) return false;
  }
}

bool Connection::next_request() {
  answering_ = false;
  status_ = 0;
  release();
  auto since = Clock::now();
  if (taken_ == buffer_.size() && !fill_patiently(since, since + limits_.idle_time)) return false;
  since = Clock::now();
  read_deadline_ = since + limits_.request_time;
  buffer_.erase(0, taken_);
  taken_ = 0;
  std::size_t end = buffer_.find(kHeadEnd);
  while (end == buffer_.npos) {
    if (buffer_.size() > limits_.header_bytes) break;
    if (!fill_patiently(since, read_deadline_)) return false;
    end = buffer_.find(kHeadEnd);
  }
  if (end == buffer_.npos || end > limits_.header_bytes) {
    refuse(whole_refusal(431, "the head of the request is too long"));
    return false;
  }
  const std::size_t length = end + kHeadEnd.size();
  CheckedHead head = check_head(std::string_view(buffer_).substr(0, length));
  if (head.status != 0) {
    refuse(whole_refusal(head.status, head.sentence));
    return false;
  }
  source_ = std::move(head.source);
  buffer_.replace(0, length, head.text);
  // Chunks have heads of their own.
  allowance_ = head.text.size() + limits_.body_bytes + limits_.header_bytes;
  return true;
}

void Connection::refuse(std::string_view refusal) {
  write(refusal.data(), refusal.size());
  drain();
}

void Connection::drain() {
  ::shutdown(socket_, SHUT_WR);
  const auto deadline = Clock::now() + kDrainTime;
  do {
    taken_ = buffer_.size();
  } while (fill(deadline));
}

bool Connection::is_readable() const {
  return taken_ < buffer_.size() || ready(POLLIN, read_deadline_);
}

bool Connection::is_writable() const {
  return ready(POLLOUT, Clock::now() + limits_.request_time);
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

// Once the server stops, the rest of an answer has to be taken quickly.
bool Connection::writable_in_time() {
  const auto hurry = [&] {
    write_deadline_ = std::min(write_deadline_, Clock::now() + kLastWords);
  };
  if (crowd_.stopping) hurry();
  std::array<pollfd, 2> waiting{pollfd{socket_, POLLOUT, 0},
                                pollfd{crowd_.stop.descriptor(), POLLIN, 0}};
  const nfds_t watched = crowd_.stopping ? 1 : 2;
  if (poll_until(waiting.data(), watched, write_deadline_) <= 0) return false;
  if (waiting[0].revents != 0) return true;
  hurry();
  return poll_until(waiting.data(), 1, write_deadline_) > 0;
}

ssize_t Connection::write(const char* data, size_t size) {
  if (!answering_) {
    constexpr std::string_view kBegin = "HTTP/1.1 ";
    const std::string_view text(data, size);
    write_deadline_ = Clock::now() + limits_.request_time;
    if (text.starts_with(kBegin) && size > kBegin.size()) status_ = text[kBegin.size()] - '0';
    answering_ = status_ != 1;  // "100 Continue" comes before the answer
  }
  std::size_t sent = 0;
  while (sent < size) {
    if (!writable_in_time()) return -1;
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

}  // namespace sape2::serve
