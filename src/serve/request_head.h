#pragma once

#include "serve/admission.h"

#include <string>
#include <string_view>

namespace sape2::serve {

/// What becomes of a request's head before the HTTP library sees it.
struct CheckedHead {
  std::string text;      ///< to be passed on, with its empty line at the end
  int status = 0;        ///< 0: it is fine; otherwise the request is refused with this
  std::string sentence;  ///< why
  RequestSource source;  ///< as it stands in the head, nothing decoded
};

/// Checks the head of a request (request line, header lines and the empty line), strictly as
/// RFC 9112 writes it: nothing is left that two readers could understand in two ways. Headers that
/// this server does not act on are dropped: Range (an answer is always whole) and Accept-Encoding
/// (nothing is compressed).
CheckedHead check_head(std::string_view head);

}  // namespace sape2::serve
