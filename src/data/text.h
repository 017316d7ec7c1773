#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// Helpers of the one-sentence messages.
namespace sape2::data {

/// 1234567 as "1,234,567".
std::string grouped(std::uint64_t number);

/// "1 image", "2 images".
std::string counted(std::uint64_t number, std::string_view noun);

}  // namespace sape2::data
