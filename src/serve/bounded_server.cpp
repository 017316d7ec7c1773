#include "serve/bounded_server.h"

#include "serve/answer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

namespace sape2::serve {
namespace {

constexpr int kBacklog = 512;
constexpr std::size_t kSpareThreads = 8;  // they tell clients that there are too many
constexpr std::chrono::milliseconds kBreath{20};

thread_local Connection* connection_of_thread = nullptr;

const std::string& too_many() {
  static const std::string kText = whole_refusal(503, "too many clients; try again in a moment");
  return kText;
}

// One connection less, whatever happens.
class OpenSocket {
 public:
  OpenSocket(socket_t socket, std::atomic<std::size_t>& open) : socket_(socket), open_(open) {}
  ~OpenSocket() {
    ::shutdown(socket_, SHUT_RDWR);
    ::close(socket_);
    --open_;
  }
  OpenSocket(const OpenSocket&) = delete;
  OpenSocket& operator=(const OpenSocket&) = delete;

 private:
  socket_t socket_;
  std::atomic<std::size_t>& open_;
};

}  // namespace

BoundedServer::BoundedServer(const Limits& limits) : limits_(limits) {
  set_payload_max_length(limits_.body_bytes);
  // Not the library's SO_REUSEPORT, by which two servers would share a port without a word.
  set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
}

BoundedServer::~BoundedServer() {
  const socket_t socket = svr_sock_.exchange(INVALID_SOCKET);
  if (socket != INVALID_SOCKET) ::close(socket);
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

bool BoundedServer::listens_only_here() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(svr_sock_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return true;
  if (address.ss_family == AF_INET6) {
    const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&six);
  }
  const in_addr& four = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  return ntohl(four.s_addr) >> 24 == IN_LOOPBACKNET;
}

void BoundedServer::run() {
  httplib::ThreadPool threads(limits_.clients + kSpareThreads);
  while (!crowd_.stopping) {
    std::array<pollfd, 2> waiting{pollfd{svr_sock_, POLLIN, 0},
                                  pollfd{crowd_.stop.descriptor(), POLLIN, 0}};
    if (::poll(waiting.data(), waiting.size(), -1) > 0 && waiting[0].revents != 0) {
      accept_one(threads);
    }
  }
  ::close(svr_sock_.exchange(INVALID_SOCKET));  // who still knocks is told at once
  threads.shutdown();
}

void BoundedServer::accept_one(httplib::TaskQueue& threads) {
  const socket_t socket = ::accept4(svr_sock_, nullptr, nullptr, SOCK_CLOEXEC);
  if (socket == INVALID_SOCKET) {
    // A client that has gone again, or no descriptor is left: both pass.
    std::this_thread::sleep_for(kBreath);
    return;
  }
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  const std::size_t open = ++crowd_.open;
  if (open > limits_.clients + kSpareThreads) {  // no thread would be free to tell it
    const OpenSocket closing(socket, crowd_.open);
    ::send(socket, too_many().data(), too_many().size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return;
  }
  threads.enqueue([this, socket, admitted = open <= limits_.clients] { serve(socket, admitted); });
}

void BoundedServer::serve(socket_t socket, bool admitted) {
  const OpenSocket open(socket, crowd_.open);
  try {
    Connection connection(socket, limits_, crowd_);
    if (!admitted) return connection.refuse(too_many());
    connection_of_thread = &connection;
    while (connection.next_request()) {
      bool closed = false;
      const bool answered =
          process_request(connection, /*close_connection=*/false, closed, nullptr);
      if (connection.refused()) return connection.drain();
      if (!answered || closed) return;
    }
  } catch (const std::exception&) {
    // No memory or no descriptor for this client; the others go on.
  }
}

void BoundedServer::stop_all() {
  crowd_.stopping = true;
  crowd_.stop.set();
}

Connection& BoundedServer::current() {
  return *connection_of_thread;
}

}  // namespace sape2::serve
