#include "serve/answer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sape2::serve {
namespace {

std::string_view reason_of(int status) {
  switch (status) {
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Bad Request";
  }
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& protective_headers() {
  static const std::vector<std::pair<std::string, std::string>> kHeaders{
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"X-Frame-Options", "DENY"},
      {"Cache-Control", "no-store"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Content-Security-Policy",
       "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; "
       "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"}};
  return kHeaders;
}

std::string error_body(std::string_view sentence) {
  return nlohmann::json{{"error", sentence}}.dump(-1, ' ', false,
                                                  nlohmann::json::error_handler_t::replace) +
         "\n";
}

std::string whole_refusal(int status, std::string_view sentence) {
  const std::string body = error_body(sentence);
  std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
      "Connection: close\r\n",
      status, reason_of(status), body.size());
  if (status == 503) head += "Retry-After: 1\r\n";
  for (const auto& [name, value] : protective_headers()) head += name + ": " + value + "\r\n";
  return head + "\r\n" + body;
}

}  // namespace sape2::serve
