#include "data/local_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace sape2::data::test {
namespace {

void send_all(int connection, const void* bytes, std::size_t count) {
  const auto* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t sent = ::send(connection, at, count, MSG_NOSIGNAL);
    if (sent <= 0) return;
    at += sent;
    count -= static_cast<std::size_t>(sent);
  }
}

}  // namespace

LocalServer::LocalServer() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket_, plain, size) != 0 || ::listen(socket_, 8) != 0 ||
      ::getsockname(socket_, plain, &size) != 0) {
    throw std::runtime_error("cannot listen on this machine");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

LocalServer::~LocalServer() {
  ::shutdown(socket_, SHUT_RDWR);
  thread_.join();
  ::close(socket_);
}

std::string LocalServer::url(const std::string& name) const {
  return fmt::format("http://127.0.0.1:{}/{}", port_, name);
}

void LocalServer::serve() {
  for (;;) {
    const int connection = ::accept(socket_, nullptr, nullptr);
    if (connection < 0) return;
    answer(connection);
    ::close(connection);
  }
}

void LocalServer::answer(int connection) {
  std::string request;
  char buffer[4096];
  while (request.find("\r\n\r\n") == std::string::npos) {
    const ssize_t count = ::recv(connection, buffer, sizeof buffer, 0);
    if (count <= 0) return;
    request.append(buffer, static_cast<std::size_t>(count));
  }
  const std::string name = request.substr(5, request.find(' ', 5) - 5);
  const auto found = files.find(name);
  if (found == files.end()) {
    const std::string head = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    return send_all(connection, head.data(), head.size());
  }
  const Bytes& content = found->second;
  std::size_t first = 0;
  const std::size_t range = request.find("Range: bytes=");
  if (range != std::string::npos && knows_ranges) {
    ++range_requests;
    first = std::stoull(request.substr(range + 13));
  }
  std::size_t count = content.size() - first;
  const std::string head =
      first > 0 ? fmt::format(
                      "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: "
                      "bytes {}-{}/{}\r\n\r\n",
                      count, first, content.size() - 1, content.size())
                : fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", count);
  send_all(connection, head.data(), head.size());
  if (cuts > 0) {
    --cuts;
    count /= 2;
  }
  bytes_sent += count;  // before the client, which has them all, can ask
  send_all(connection, content.data() + first, count);
}

}  // namespace sape2::data::test
