#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

/// Parts of src/kernels/cuda/README.md that tests make of the code.
namespace sape2::kernels::cuda {

/// Expects that the page has `text` between a comment that names its maker and the next `end`.
/// SAPE2_WRITE_README=1 writes it there.
inline void expect_in_readme(const std::string& maker, const std::string& text) {
  const std::string path = SAPE2_SOURCE_DIR "/src/kernels/cuda/README.md";
  const std::string begin = "<!-- made by tests/kernels/" + maker + " -->\n",
                    end = "<!-- end -->\n", expected = "\n" + text + "\n";
  std::ostringstream file;
  file << std::ifstream(path).rdbuf();
  const std::string page = file.str();
  const auto before = page.find(begin);
  ASSERT_NE(before, std::string::npos) << "the page has no part that " << maker << " makes";
  const auto from = before + begin.size(), to = page.find(end, from);
  ASSERT_NE(to, std::string::npos);
  if (std::getenv("SAPE2_WRITE_README") != nullptr)
    std::ofstream(path) << page.substr(0, from) + expected + page.substr(to);
  else
    EXPECT_EQ(page.substr(from, to - from), expected);
}

}  // namespace sape2::kernels::cuda
