#pragma once

#include <cstdio>
#include <cstdlib>
#include <string_view>

/// What fuzz targets hold results to: a broken rule aborts, which libFuzzer and the tests see.
namespace sape2::testing {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz target: %s\n", what);
  std::abort();
}

inline void require_sentence(std::string_view text) {
  require(!text.empty() && text.find('\n') == std::string_view::npos, "a refusal is not one line");
  require(text.size() < 4096, "a refusal is longer than anybody reads");
}

}  // namespace sape2::testing
