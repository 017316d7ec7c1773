#include "dist/backend.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>
#include <memory>

namespace sape2::dist {
namespace {

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

// The first address of this machine that others can reach; "" if it has none.
std::string outer_address() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    char text[INET_ADDRSTRLEN] = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
    return text;
  }
  return "";
}

std::shared_ptr<::gloo::transport::Device> make_device(const Meeting& meeting, bool several_hosts) {
  // As everywhere with LibTorch: who knows the network names the interface.
  if (const char* name = std::getenv("GLOO_SOCKET_IFNAME")) {
    return c10d::ProcessGroupGloo::createDeviceForInterface(name);
  }
  // The address that reaches the store reaches the others too, unless the machine's own name
  // stands for its loopback address, as on Debian.
  std::string address = meeting.own_address;
  if (several_hosts && is_loopback(address)) {
    if (const std::string outer = outer_address(); !outer.empty()) address = outer;
  }
  return c10d::ProcessGroupGloo::createDeviceForHostname(address);
}

}  // namespace

c10::intrusive_ptr<Library> make_gloo(const Meeting& meeting, const Place& place,
                                      const Patience& patience, bool several_hosts) {
  const auto options = c10d::ProcessGroupGloo::Options::create();
  options->timeout = longest_wait(patience);
  options->devices.push_back(make_device(meeting, several_hosts));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(meeting.libraries, place.rank, place.size,
                                                     options);
}

}  // namespace sape2::dist
