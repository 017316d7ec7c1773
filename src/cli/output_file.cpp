#include "cli/output_file.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include <algorithm>
#include <system_error>

namespace sape2::cli {

void refuse_to_overwrite(const std::string& out, const std::vector<std::filesystem::path>& read) {
  const bool same = std::ranges::any_of(read, [&](const std::filesystem::path& file) {
    std::error_code error;
    return std::filesystem::equivalent(out, file, error);
  });
  if (!same) return;
  throw Error("cannot write " + in_quotes(out) +
              ": this command reads that file; choose another name or folder");
}

}  // namespace sape2::cli
