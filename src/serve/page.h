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

/// The page as the server gives it.
const std::vector<PageFile>& page_files();

/// The page that needs no server: the same but for who answers it, and the program that does; empty
/// where this build has none.
const std::vector<PageFile>& explorer_files();

}  // namespace sape2::serve
