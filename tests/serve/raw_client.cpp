#include "serve/served.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace sape2::serve::test {
namespace {

constexpr int kPatience = 30'000;  // milliseconds

std::string request(const std::string& method, int port, const std::string& path,
                    const std::string& more) {
  return method + " " + path + " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) + "\r\n" +
         more;
}

}  // namespace

RawClient::RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    ::close(socket_);
    throw std::runtime_error("cannot connect");
  }
}

RawClient::~RawClient() {
  ::close(socket_);
}

bool RawClient::send(const std::string& bytes) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return false;
    sent += static_cast<std::size_t>(count);
  }
  return true;
}

Reply RawClient::receive() {
  std::size_t wanted = std::string::npos;
  for (;;) {
    const std::size_t head = rest_.find("\r\n\r\n");
    if (head != std::string::npos && wanted == std::string::npos) {
      const std::size_t length = rest_.find("Content-Length: ");
      wanted = head + 4 + (length < head ? std::stoul(rest_.substr(length + 16)) : 0);
    }
    if (rest_.size() >= wanted) {
      Reply reply{std::stoi(rest_.substr(9, 3)), rest_.substr(0, head + 4),
                  rest_.substr(head + 4, wanted - head - 4)};
      rest_.erase(0, wanted);
      return reply;
    }
    pollfd waiting{socket_, POLLIN, 0};
    char buffer[16384];
    if (::poll(&waiting, 1, kPatience) <= 0) return {};
    const ssize_t count = ::recv(socket_, buffer, sizeof buffer, 0);
    if (count <= 0) return {};
    rest_.append(buffer, static_cast<std::size_t>(count));
  }
}

bool RawClient::closed_within(int milliseconds) {
  pollfd waiting{socket_, POLLIN, 0};
  char buffer[4096];
  while (::poll(&waiting, 1, milliseconds) > 0) {
    if (::recv(socket_, buffer, sizeof buffer, 0) <= 0) return true;
  }
  return false;
}

Reply get(int port, const std::string& path, const std::string& more_headers) {
  RawClient client(port);
  client.send(request("GET", port, path, more_headers + "\r\n"));
  return client.receive();
}

Reply post(int port, const std::string& path, const std::string& body,
           const std::string& more_headers) {
  RawClient client(port);
  client.send(
      request("POST", port, path,
              more_headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n"));
  client.send(body);
  return client.receive();
}

std::string png_file(std::int64_t height, std::int64_t width) {
  data::Image image{height, width, 3, {}};
  std::uint32_t state = 7;
  for (std::int64_t i = 0; i < height * width * 3; ++i) {
    state = state * 1664525 + 1013904223;
    image.pixels.push_back(static_cast<std::uint8_t>(state >> 24));
  }
  const auto bytes = data::encode_png(image);
  return {bytes.begin(), bytes.end()};
}

}  // namespace sape2::serve::test
