#pragma once

#include "sape2/base/error.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace sape2::testing {

/// The sentence of the Error that `action` must throw.
template <class Action>
std::string error_text(Action&& action) {
  try {
    std::forward<Action>(action)();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << "more than one line: " << text;
    EXPECT_FALSE(text.empty());
    return text;
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in: " << text;
}

}  // namespace sape2::testing
