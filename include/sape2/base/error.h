#pragma once

#include <stdexcept>

namespace sape2 {

/// An error that somebody can fix: its text is one sentence that says what is wrong, where, and
/// what to do. Programs print it and exit with a non-zero code.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sape2
