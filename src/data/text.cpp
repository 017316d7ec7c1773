#include "data/text.h"

namespace sape2::data {

std::string grouped(std::uint64_t number) {
  const std::string digits = std::to_string(number);
  std::string result;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) result += ',';
    result += digits[i];
  }
  return result;
}

std::string counted(std::uint64_t number, std::string_view noun) {
  const char* plural = number == 1 ? "" : noun.ends_with('s') ? "es" : "s";
  return grouped(number) + " " + std::string(noun) + plural;
}

}  // namespace sape2::data
