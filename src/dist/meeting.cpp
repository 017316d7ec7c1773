#include "dist/meeting.h"

#include "sape2/base/in_quotes.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <system_error>
#include <thread>

namespace sape2::dist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPause = std::chrono::milliseconds(100);
constexpr int kConnectMilliseconds = 5000;  // of one attempt
// A store answers at once; whatever else listens there may never answer.
constexpr auto kFirstAnswer = std::chrono::seconds(20);
// Each process greets twice in every attempt; what is no store answers with any other number.
constexpr int64_t kMostGreetings = int64_t{1} << 32;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds));
}

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses addresses_of(const Place& place) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(place.address.c_str(), std::to_string(place.port).c_str(), &wanted, &found);
  if (failed != 0) {
    throw Error("the processes are to meet at " + in_quotes(place.address) +
                ", but no machine of that name is known here (" + ::gai_strerror(failed) +
                "); set MASTER_ADDR to the address of the machine of rank 0");
  }
  return {found, ::freeaddrinfo};
}

std::string numeric(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = {};
  ::getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

// The own address of a connection that is made; "" and errno if it is refused.
std::string try_to_connect(const addrinfo& address) {
  const Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return "";
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return "";
    pollfd waiting{socket.get(), POLLOUT, 0};
    if (::poll(&waiting, 1, kConnectMilliseconds) == 0) {
      errno = ETIMEDOUT;
      return "";
    }
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      errno = error;
      return "";
    }
  }
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length);
  return numeric(reinterpret_cast<const sockaddr*>(&own), length);
}

// Waits until somebody listens, by ourselves: LibTorch would warn on standard error meanwhile.
std::string await_listener(const Place& place, const Patience& patience) {
  const auto deadline = Clock::now() + milliseconds(patience.join);
  const Addresses addresses = addresses_of(place);
  int error = 0;
  do {
    for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
      if (std::string own = try_to_connect(*one); !own.empty()) return own;
      error = errno;
    }
    std::this_thread::sleep_for(kPause);
  } while (Clock::now() < deadline);
  throw Error("rank " + std::to_string(place.rank) + " cannot reach the store at " +
              meeting_point(place) + " (" + std::generic_category().message(error) +
              "); check that rank 0 runs there and that MASTER_ADDR and MASTER_PORT are its own");
}

// What LibTorch throws has a backtrace behind its first line.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

c10::intrusive_ptr<c10d::Store> connect(const Place& place, const Patience& patience, bool serve) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(place.port);
  options.isServer = serve;
  options.waitWorkers = false;
  options.timeout = milliseconds(patience.join);
  return c10::make_intrusive<c10d::TCPStore>(place.address, options);
}

c10::intrusive_ptr<c10d::Store> serve(const Place& place, const Patience& patience) {
  try {
    return connect(place, patience, true);
  } catch (const std::exception& error) {
    throw Error("rank 0 cannot keep the store at " + meeting_point(place) + ": " +
                first_line(error) +
                "; set MASTER_PORT to a free port, and MASTER_ADDR to an "
                "address of the machine of rank 0");
  }
}

// On a thread of its own, which is left behind if no store answers.
c10::intrusive_ptr<c10d::Store> connect_in_time(const Place& place, const Patience& patience) {
  auto promise = std::make_shared<std::promise<c10::intrusive_ptr<c10d::Store>>>();
  auto answer = promise->get_future();
  std::thread([promise, place, patience] {
    try {
      auto store = connect(place, patience, false);
      const int64_t greetings = store->add("sape2/greetings", 1);
      if (greetings < 1 || greetings > kMostGreetings) {
        throw Error("it counts " + std::to_string(greetings) + " processes");
      }
      promise->set_value(std::move(store));
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  const std::string strange = "what listens at " + meeting_point(place) +
                              " is not a store of LibTorch; set MASTER_ADDR and MASTER_PORT to "
                              "those of rank 0";
  const auto longest =
      std::min<std::chrono::milliseconds>(kFirstAnswer, milliseconds(patience.join));
  if (answer.wait_for(longest) != std::future_status::ready) throw Error(strange);
  try {
    return answer.get();
  } catch (const std::exception& error) {
    throw Error(strange + " (" + first_line(error) + ")");
  }
}

}  // namespace

std::string meeting_point(const Place& place) {
  return place.address + ":" + std::to_string(place.port);
}

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string text_of(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

Meeting meet(Place& place, const Patience& patience) {
  addresses_of(place);  // a name that is not known is the first thing to say
  c10::intrusive_ptr<c10d::Store> store;
  Meeting meeting;
  if (place.store_is_there) {
    meeting.own_address = await_listener(place, patience);
    try {
      store = connect_in_time(place, patience);
    } catch (const Error&) {
      place.store_is_there = false;
      ++place.port;
    }
  }
  if (!store) {
    meeting.here = place.rank == 0;
    if (meeting.here) store = serve(place, patience);
    meeting.own_address = await_listener(place, patience);
    if (!meeting.here) store = connect_in_time(place, patience);
  }
  // A restart uses a store that outlived it anew.
  const std::string prefix = "sape2/attempt_" + std::to_string(place.restarts);
  const auto prefixed = [&](c10::intrusive_ptr<c10d::Store> whole) {
    return c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(whole));
  };
  meeting.store = prefixed(std::move(store));
  meeting.libraries = prefixed(connect_in_time(place, patience));
  return meeting;
}

}  // namespace sape2::dist
