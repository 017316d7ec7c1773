#include "io/text_file.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "io/file_reader.h"

namespace sape2::io {

std::string read_text_file(const std::filesystem::path& path, std::uint64_t most) {
  const FileReader file(path);
  if (file.size() > most) {
    throw Error("cannot read " + in_quotes(path) + ": it has " + std::to_string(file.size()) +
                " bytes, expected " + std::to_string(most) + " at most");
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace sape2::io
