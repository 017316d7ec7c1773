#pragma once

#include <string>
#include <vector>

namespace sape2::cli {

/// Texts as the system's calls take them, up to a null pointer; valid as long as `texts` are.
inline std::vector<char*> argument_pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace sape2::cli
