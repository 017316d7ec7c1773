#pragma once
// What the C++ library of Debian's emscripten (libc++ 14) lacks of C++20, as far as our sources use
// it. Included before every file that is compiled to WebAssembly; can go once emscripten brings
// libc++ 16.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <system_error>

#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 16000

// NOLINTBEGIN(cert-dcl58-cpp): it stands in for the library
namespace std {

template <typename To, typename From>
To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

inline from_chars_result from_chars(const char* first, const char* last, double& value) {
  const string text(first, last);
  char* end = nullptr;
  const double found = strtod(text.c_str(), &end);
  if (end == text.c_str() || text.front() == '+' || text.front() == ' ') {
    return {first, errc::invalid_argument};
  }
  value = found;
  return {first + (end - text.c_str()), errc()};
}

// The fewest digits that give the number back.
inline to_chars_result to_chars(char* first, char* last, double value) {
  for (int digits = 1; digits <= 17; ++digits) {
    const int length = snprintf(first, static_cast<size_t>(last - first), "%.*g", digits, value);
    if (length >= last - first) return {last, errc::value_too_large};
    if (strtod(first, nullptr) == value) return {first + length, errc()};
  }
  return {last, errc::value_too_large};
}

namespace ranges {

template <typename Range, typename Test>
bool all_of(Range&& range, Test test) {
  return std::all_of(std::begin(range), std::end(range), std::ref(test));
}

template <typename Range, typename Out>
void copy(Range&& range, Out out) {
  std::copy(std::begin(range), std::end(range), out);
}

template <typename Range, typename Out>
void move(Range&& range, Out out) {
  std::move(std::begin(range), std::end(range), out);
}

template <typename Range, typename Value>
auto count(Range&& range, const Value& value) {
  return std::count(std::begin(range), std::end(range), value);
}

template <typename Range, typename Test>
auto find_if(Range&& range, Test test) {
  return std::find_if(std::begin(range), std::end(range), std::ref(test));
}

template <typename Range, typename Value, typename Projection = identity>
auto find(Range&& range, const Value& value, Projection projection = {}) {
  return std::find_if(std::begin(range), std::end(range),
                      [&](const auto& one) { return std::invoke(projection, one) == value; });
}

template <typename Range>
auto max_element(Range&& range) {
  return std::max_element(std::begin(range), std::end(range));
}

template <typename Range, typename Order = std::less<>, typename Projection = identity>
void sort(Range&& range, Order order = {}, Projection projection = {}) {
  std::sort(std::begin(range), std::end(range), [&](const auto& a, const auto& b) {
    return order(std::invoke(projection, a), std::invoke(projection, b));
  });
}

template <typename Range, typename Order = std::less<>>
void partial_sort(Range&& range, decltype(std::begin(std::declval<Range&>())) middle,
                  Order order = {}) {
  std::partial_sort(std::begin(range), middle, std::end(range), order);
}

}  // namespace ranges
}  // namespace std
// NOLINTEND(cert-dcl58-cpp)

#endif
