#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sape2::cli {

/// How text is written: with colours where standard output is a terminal that wants them.
class Terminal {
 public:
  /// Colours on a terminal only, never with NO_COLOR set or TERM=dumb.
  static Terminal standard_output();

  Terminal(bool colours, std::size_t columns) : colours_(colours), columns_(columns) {}

  /// One or more lines. Here as below, control characters in names are shown escaped.
  void print(std::string_view text) const;

  /// A line that begins a section.
  void heading(std::string_view text) const;

  /// A line that asks for attention.
  void warning(std::string_view text) const;

  /// Rows of cells in aligned columns, indented by two. The last cell is wrapped at the terminal's
  /// width; rows may have different numbers of cells.
  void table(std::vector<std::vector<std::string>> rows) const;

 private:
  std::string styled(std::string_view text, const char* code) const;

  bool colours_;
  std::size_t columns_;
};

}  // namespace sape2::cli
