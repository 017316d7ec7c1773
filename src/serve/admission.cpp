#include "serve/admission.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cctype>
#include <optional>

namespace sape2::serve {
namespace {

constexpr std::string_view kScheme = "http://";
constexpr std::string_view kStandardPort = "80";

struct Authority {
  std::string host;  // lower case, an IPv6 address in brackets
  std::string port;
  bool operator==(const Authority&) const = default;
};

// "127.0.0.1:8322", "[::1]:8322", "localhost". The port is compared as text: exactly as a browser
// writes it.
Authority authority_of(std::string_view text) {
  const std::size_t bracket = text.starts_with('[') ? text.find(']') : 0;
  const std::size_t colon = bracket == text.npos ? text.npos : text.find(':', bracket);
  Authority authority{std::string(text.substr(0, colon)), std::string(kStandardPort)};
  if (colon != text.npos) authority.port = text.substr(colon + 1);
  std::ranges::transform(authority.host, authority.host.begin(),
                         [](unsigned char c) { return std::tolower(c); });
  return authority;
}

// inet_pton takes four decimal numbers and nothing else: no "127.1", no leading zeros.
std::optional<in_addr> as_ipv4(const std::string& host) {
  in_addr address{};
  if (::inet_pton(AF_INET, host.c_str(), &address) != 1) return std::nullopt;
  return address;
}

std::optional<in6_addr> as_ipv6(const std::string& host) {
  if (!host.starts_with('[') || !host.ends_with(']')) return std::nullopt;
  in6_addr address{};
  const std::string inner = host.substr(1, host.size() - 2);
  if (::inet_pton(AF_INET6, inner.c_str(), &address) != 1) return std::nullopt;
  return address;
}

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  if (const auto four = as_ipv4(host)) return ntohl(four->s_addr) >> 24 == IN_LOOPBACKNET;
  const auto six = as_ipv6(host);
  return six && IN6_IS_ADDR_LOOPBACK(&*six);
}

bool is_address(const std::string& host) {
  return as_ipv4(host) || as_ipv6(host);
}

}  // namespace

Admission::Admission(std::string_view listens_on, bool only_here, int port)
    : only_here_(only_here), port_(std::to_string(port)) {
  const std::string name = authority_of(listens_on).host;
  if (listens_on.find(':') == listens_on.npos && !is_address(name)) own_name_ = name;
}

bool Admission::accepts_host(std::string_view host) const {
  const Authority authority = authority_of(host);
  if (authority.port != port_ || authority.host.empty()) return false;
  if (authority.host == own_name_ || is_loopback(authority.host)) return true;
  return !only_here_ && is_address(authority.host);
}

std::string Admission::refusal(const RequestSource& source) const {
  if (!accepts_host(source.host)) {
    return "this server answers by its own address only; open it as it was printed";
  }
  if (!source.origin.empty() &&
      !(source.origin.starts_with(kScheme) &&
        authority_of(std::string_view(source.origin).substr(kScheme.size())) ==
            authority_of(source.host))) {
    return "this server answers its own page only";
  }
  if (source.fetch_site.empty() || source.fetch_site == "same-origin" ||
      source.fetch_site == "none") {
    return "";
  }
  const bool opens_page = source.method == "GET" && source.path == "/" &&
                          source.fetch_mode == "navigate" && source.fetch_dest == "document";
  return opens_page ? "" : "this server answers its own page only";
}

}  // namespace sape2::serve
