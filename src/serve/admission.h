#pragma once

#include <string>
#include <string_view>

namespace sape2::serve {

/// The headers by which a browser tells where a request comes from; empty where there is none.
struct RequestSource {
  std::string method;
  std::string path;
  std::string host;
  std::string origin;
  std::string fetch_site, fetch_mode, fetch_dest;  ///< Sec-Fetch-…
};

/// Who is answered: programs on this machine and the server's own page, never another site's page.
///
/// - Host must be an address of this machine with the server's port: a whole address of
///   127.0.0.0/8, `[::1]` or `localhost`. A name that somebody made to point here (DNS rebinding)
///   is none. A server that others can reach takes any address, as addresses cannot be rebound;
///   and the name that the user told it to listen on is taken always.
/// - Origin, if there is one, must be the very same: http, address and port.
/// - Sec-Fetch-Site, if there is one, must be `same-origin`, or `none` (typed, a bookmark). Only
///   the page itself may be opened by a link of another site: it holds no data, cannot be framed,
///   and its opener gets no hold of it (Cross-Origin-Opener-Policy).
class Admission {
 public:
  /// `listens_on`: address or name that the user gave; `only_here`: whether the socket's address is
  /// a loopback address.
  Admission(std::string_view listens_on, bool only_here, int port);

  /// Why the request is refused, in a sentence; empty: it is admitted.
  std::string refusal(const RequestSource& source) const;
  bool accepts_host(std::string_view host) const;

 private:
  std::string own_name_;  ///< lower case; empty where an address was given
  bool only_here_;
  std::string port_;
};

}  // namespace sape2::serve
