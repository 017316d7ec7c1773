#include "serve/hostile_client.h"

#include <array>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

namespace sape2::serve::test {
namespace {

using std::chrono::milliseconds;

void pause(int count) {
  std::this_thread::sleep_for(milliseconds(count));
}

}  // namespace

HostileClient::HostileClient(int port, std::string large, std::uint32_t seed)
    : port_(port), large_(std::move(large)), random_(seed) {}

std::string HostileClient::get(const std::string& path, const std::string& more) const {
  return "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port_) + "\r\n" + more +
         "\r\n";
}

int HostileClient::act(int way, const std::atomic<bool>& over) {
  try {
    switch (way % 5) {
      case 0:
        return send_slowly(over);
      case 1:
        return take_nothing(over);
      case 2:
        return abandon();
      case 3:
        return send_nonsense();
      default:
        return ask_for_ranges();
    }
  } catch (const std::runtime_error&) {  // the server has gone
    pause(20);
    return 0;
  }
}

int HostileClient::send_slowly(const std::atomic<bool>& over) {
  RawClient client(port_);
  for (const char byte : get("/api/setup", "X: " + std::string(500, 'y') + "\r\n")) {
    if (over || !client.send(std::string(1, byte))) break;
    pause(50);
  }
  return 1;
}

int HostileClient::take_nothing(const std::atomic<bool>& over) {
  RawClient client(port_);
  for (int i = 0; i < 4; ++i) client.send(get("/api/picture?image=" + large_));
  for (int i = 0; i < 60 && !over; ++i) pause(50);
  return 4;
}

int HostileClient::abandon() {
  {
    RawClient client(port_);
    client.send(get("/api/figure?model=0&image=data:" + std::to_string(random_() % 20) +
                    "&what=attention&size=256&y=0&x=" + std::to_string(random_() % 64)));
    pause(static_cast<int>(random_() % 3) * 10);
  }
  pause(5);
  return 1;
}

int HostileClient::send_nonsense() {
  RawClient client(port_);
  const std::string good = get("/api/rows?model=0&image=data:0&what=bias&y=0&x=0");
  const std::array<std::string, 6> kinds{
      std::string("\r\n\r\n"),
      std::string("GET / HTTP/1.1\r\nHost: evil.example\r\nHost: 127.0.0.1\r\n\r\n"),
      "GET /" + std::string(30000, 'a') + " HTTP/1.1\r\n\r\n",
      std::string("POST /api/images HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"),
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(300, '\0'),
      good};
  std::string bytes = kinds[random_() % kinds.size()];
  for (int i = 0; i < 4; ++i) bytes[random_() % bytes.size()] = static_cast<char>(random_());
  client.send(bytes);
  if (random_() % 2 == 0) client.send("\r\n\r\n");
  client.closed_within(100);
  return 1;
}

int HostileClient::ask_for_ranges() {
  std::string ranges = "Range: bytes=0-";
  for (int i = 0; i < 2600; ++i) ranges += ",0-";
  RawClient client(port_);
  client.send(get("/api/picture?image=" + large_, ranges + "\r\n"));
  client.receive();
  pause(20);
  return 1;
}

}  // namespace sape2::serve::test
