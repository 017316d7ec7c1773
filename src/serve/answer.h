#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sape2::serve {

/// An answer's body and what it is.
struct Answer {
  std::string type;
  std::string body;
};

/// What every answer's head carries, so that a browser keeps it from other sites' pages and runs
/// nothing that is not the page's own.
const std::vector<std::pair<std::string, std::string>>& protective_headers();

/// `{"error": "one sentence"}`
std::string error_body(std::string_view sentence);

/// A whole refusal as it goes over the wire, for what never reaches the HTTP library. The
/// connection ends after it.
std::string whole_refusal(int status, std::string_view sentence);

}  // namespace sape2::serve
