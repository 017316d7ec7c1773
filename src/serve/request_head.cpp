#include "serve/request_head.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

namespace sape2::serve {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::size_t kLongestLine = 8000;  // the library refuses 8192
constexpr std::size_t kMostHeaders = 100;
constexpr std::array<std::string_view, 3> kDropped{"range", "if-range", "accept-encoding"};
// What admission and the length of the body hang on: two of them would be a riddle.
constexpr std::array<std::string_view, 8> kAtMostOnce{
    "host",           "origin",         "content-length", "transfer-encoding",
    "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest", "expect"};

struct Refused {
  int status;
  const char* sentence;
};

bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) || kMarks.find(static_cast<char>(c)) != kMarks.npos);
  });
}

bool is_text(std::string_view text) {
  return std::ranges::none_of(text,
                              [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7F; });
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t";
  const std::size_t first = text.find_first_not_of(kSpaces);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// "GET /api/setup?model=0 HTTP/1.1"
RequestSource check_request_line(std::string_view line) {
  if (line.size() > kLongestLine) throw Refused{414, "the address is too long"};
  const std::size_t first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || first == last) throw Refused{400, "the request is not understood"};
  const std::string_view method = line.substr(0, first), version = line.substr(last + 1);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if (!is_token(method) || !version.starts_with("HTTP/")) {
    throw Refused{400, "the request is not understood"};
  }
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    throw Refused{505, "this server speaks HTTP/1.1"};
  }
  if (!target.starts_with('/') || !is_text(target) || target.find_first_of(" \t") != target.npos) {
    throw Refused{400, "the address is not understood; it begins with a slash"};
  }
  RequestSource source;
  source.method = method;
  source.path = target.substr(0, target.find('?'));
  return source;
}

void check_body_length(std::string_view method, const std::map<std::string, std::string>& values) {
  const auto length = values.find("content-length"), coding = values.find("transfer-encoding");
  const bool has_length = length != values.end(), has_coding = coding != values.end();
  constexpr std::size_t kMostDigits = 18;
  if (has_length && (length->second.empty() || length->second.size() > kMostDigits ||
                     !std::ranges::all_of(length->second,
                                          [](unsigned char c) { return c >= '0' && c <= '9'; }))) {
    throw Refused{400, "Content-Length is not a number"};
  }
  if (has_coding && (has_length || lower_case(coding->second) != "chunked")) {
    throw Refused{400, "a body has a Content-Length or is chunked, nothing else"};
  }
  // What is not read would be taken for the next request.
  const bool has_body = has_coding || (has_length && length->second != "0");
  if (has_body && (method == "GET" || method == "HEAD")) {
    throw Refused{400, "a GET request has no body"};
  }
}

std::string_view take_line(std::string_view& rest) {
  const std::size_t end = rest.find(kLineEnd);
  if (end == rest.npos) throw Refused{400, "the request is not understood"};
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end + kLineEnd.size());
  return line;
}

CheckedHead checked(std::string_view rest) {
  const std::string_view request_line = take_line(rest);
  RequestSource source = check_request_line(request_line);
  std::string kept = std::string(request_line).append(kLineEnd);
  std::map<std::string, std::string> values;
  for (std::size_t count = 1; rest != kLineEnd; ++count) {
    const std::string_view line = take_line(rest);
    if (line.size() > kLongestLine || count > kMostHeaders) {
      throw Refused{431, "the request has too many headers, or too long ones"};
    }
    const std::size_t colon = line.find(':');
    if (colon == line.npos || !is_token(line.substr(0, colon)) || !is_text(line)) {
      throw Refused{400, "a header of the request is not understood"};
    }
    const std::string name = lower_case(line.substr(0, colon));
    const bool first = values.emplace(name, trimmed(line.substr(colon + 1))).second;
    if (!first && contains(kAtMostOnce, name)) {
      throw Refused{400, "a header that may stand once stands twice"};
    }
    if (!contains(kDropped, name)) kept.append(line).append(kLineEnd);
  }
  if (!values.contains("host")) throw Refused{400, "the request lacks a Host header"};
  check_body_length(source.method, values);
  source.host = values["host"];
  source.origin = values["origin"];
  source.fetch_site = values["sec-fetch-site"];
  source.fetch_mode = values["sec-fetch-mode"];
  source.fetch_dest = values["sec-fetch-dest"];
  return {std::move(kept.append(kLineEnd)), 0, "", std::move(source)};
}

}  // namespace

CheckedHead check_head(std::string_view head) {
  try {
    return checked(head);
  } catch (const Refused& refused) {
    return {"", refused.status, refused.sentence, {}};
  }
}

}  // namespace sape2::serve
