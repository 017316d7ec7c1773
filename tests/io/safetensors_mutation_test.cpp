#include "io/fuzz_one_input.h"
#include "io/raw_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace sape2::io::test {
namespace {

// Small valid files: mutations of them get past the first checks.
std::vector<std::string> seeds() {
  const std::string header = R"({"__metadata__":{"format":"1","names":"[\"cat\",\"d\u00f6g\"]"},)"
                             R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                             R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[24,28]},)"
                             R"("s":{"dtype":"U8","shape":[],"data_offsets":[28,29]},)"
                             R"("e":{"dtype":"I64","shape":[0,7],"data_offsets":[29,29]}}   )";
  return {raw_file(header, std::string(29, 'x')), raw_file("{}"),
          raw_file(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "a")};
}

// Pieces of header text that are worth meeting in the wrong place.
const std::vector<std::string> kPieces = {
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "0",
    "-1",
    "1e9",
    "1.5",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775808",
    "null",
    "true",
    "\\u0000",
    "\\ud800",
    "\xff",
    std::string(1, '\0'),
    R"("dtype":)",
    R"("shape":)",
    R"("data_offsets":)",
    "\"F32\"",
    "\"__metadata__\":",
    R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)",
    std::string(300, '['),
    std::string(300, '{')};

class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}

  void mutate(std::string& file) {
    const std::size_t times = 1 + below(4);
    for (std::size_t i = 0; i < times; ++i) mutate_once(file);
    // Most changes alter the header's length; without this hardly one would get past that check.
    if (below(4) != 0) mend_length(file);
  }

  std::size_t below(std::size_t limit) { return random_() % limit; }

 private:
  void mutate_once(std::string& file) {
    const std::size_t place = below(file.size() + 1);
    switch (below(6)) {
      case 0:
        if (place < file.size()) file[place] = static_cast<char>(random_());
        break;
      case 1:
        if (place < file.size()) file[place] ^= static_cast<char>(1u << below(8));
        break;
      case 2:
        file.insert(place, kPieces[below(kPieces.size())]);
        break;
      case 3:
        file.erase(place, 1 + below(12));
        break;
      case 4:
        file.insert(below(file.size() + 1), file.substr(place, below(64)));
        break;
      default:
        file.resize(place);
    }
  }

  static void mend_length(std::string& file) {
    const auto end = file.rfind('}');
    if (end == std::string::npos || end < 8) return;
    const std::uint64_t length = end + 1 - 8;
    std::memcpy(file.data(), &length, sizeof length);
  }

  std::mt19937 random_;
};

TEST(SafetensorsMutation, NoInputCrashesTheReader) {
  const auto originals = seeds();
  for (const std::string& original : originals) EXPECT_TRUE(fuzz_one_input(as_bytes(original)));
  Mutator mutator(20240607);
  int taken = 0;
  constexpr int kRounds = 60'000;
  for (int round = 0; round < kRounds; ++round) {
    std::string file = originals[mutator.below(originals.size())];
    mutator.mutate(file);
    // A heap copy of exact size, so that a sanitizer sees any read beyond it.
    const std::vector<char> exact(file.begin(), file.end());
    if (fuzz_one_input(std::as_bytes(std::span(exact)))) ++taken;
  }
  // Both verdicts have to be reached often, or the mutations test nothing.
  EXPECT_GT(taken, kRounds / 100);
  EXPECT_LT(taken, kRounds / 2);
}

TEST(SafetensorsMutation, EveryTruncationIsRefused) {
  const std::string whole = seeds().front();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_FALSE(fuzz_one_input(std::as_bytes(std::span(cut)))) << length;
  }
}

}  // namespace
}  // namespace sape2::io::test
