// Any bytes as the head of a request: refused in a sentence, or understood in one way only; and
// admitted only by the server's own address.
#include "serve/admission.h"
#include "serve/request_head.h"
#include "support/fuzz_checks.h"

#include <algorithm>
#include <cctype>

namespace {

using sape2::serve::Admission;
using sape2::serve::CheckedHead;
using sape2::serve::RequestSource;
using sape2::testing::require;

constexpr int kPort = 8322;
constexpr std::string_view kPortText = ":8322";

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// Written apart from the server's own way to say so: letters that can be in no foreign name.
bool is_own_address(const std::string& given) {
  std::string host = lower_case(given);
  if (!host.ends_with(kPortText)) return false;
  host.resize(host.size() - kPortText.size());
  if (host == "localhost") return true;
  if (host.starts_with("[") && host.ends_with("]"))
    return host.substr(1, host.size() - 2).find_first_not_of("0:1.") == std::string::npos;
  return host.starts_with("127.") && std::ranges::count(host, '.') == 3 &&
         host.find_first_not_of("0123456789.") == std::string::npos;
}

void check_admitted(const RequestSource& source) {
  require(is_own_address(source.host), "a foreign Host is admitted");
  const std::string own = "http://" + lower_case(source.host);
  require(source.origin.empty() || lower_case(source.origin) == own,
          "a foreign Origin is admitted");
  const std::string& site = source.fetch_site;
  const bool ours = site.empty() || site == "same-origin" || site == "none";
  require(ours || (source.method == "GET" && source.path == "/"),
          "a request of another site is admitted");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view head(reinterpret_cast<const char*>(data), size);
  const CheckedHead checked = sape2::serve::check_head(head);
  if (checked.status != 0) {
    require(checked.status >= 400 && checked.status < 600, "a refusal has no status");
    sape2::testing::require_sentence(checked.sentence);
    return 0;
  }
  require(checked.text.ends_with("\r\n\r\n"), "a head does not end");
  require(lower_case(checked.text).find("\r\nrange:") == std::string::npos, "a Range is passed on");
  const CheckedHead again = sape2::serve::check_head(checked.text);
  require(again.status == 0 && again.text == checked.text, "a head is understood in two ways");
  require(again.source.host == checked.source.host && again.source.origin == checked.source.origin,
          "a source changed");
  static const Admission admission("127.0.0.1", /*only_here=*/true, kPort);
  if (admission.refusal(checked.source).empty()) check_admitted(checked.source);
  return 0;
}
