#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sape2::serve {

/// A file of the page, built into the program.
struct PageFile {
  std::string path;  ///< on the server
  const char* type;
  std::string_view content;
};

const std::vector<PageFile>& page_files();

}  // namespace sape2::serve
