#include "cli/terminal.h"

#include "sape2/base/in_quotes.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace sape2::cli {
namespace {

constexpr std::size_t kColumnsWithoutTerminal = 100;
constexpr std::size_t kFewestColumns = 40;
constexpr std::string_view kIndent = "  ";

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

std::size_t columns_of_terminal() {
  struct winsize size {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return kColumnsWithoutTerminal;
  }
  return std::max<std::size_t>(size.ws_col, kFewestColumns);
}

// Characters, not bytes: × and ² take one column.
std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

void put_line(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
}

std::string padded(std::string_view text, std::size_t width) {
  const std::size_t present = display_width(text);
  return std::string(text) + std::string(width > present ? width - present : 0, ' ');
}

// Breaks text at spaces so that no line but one of a single long word exceeds `width`.
std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (!lines.back().empty()) {
      if (display_width(lines.back()) + 1 + display_width(word) > width) {
        lines.emplace_back();
      } else {
        lines.back() += ' ';
      }
    }
    lines.back() += word;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

Terminal Terminal::standard_output() {
  const char* kind = std::getenv("TERM");
  const bool dumb = kind != nullptr && std::string_view(kind) == "dumb";
  const bool colours = ::isatty(STDOUT_FILENO) == 1 && !is_set("NO_COLOR") && !dumb;
  return Terminal(colours, columns_of_terminal());
}

void Terminal::print(std::string_view text) const {
  // Names from files must not be able to steer the terminal.
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    put_line(printable(text.substr(0, end)));
    text.remove_prefix(end + 1);
  }
  put_line(printable(text));
}

void Terminal::heading(std::string_view text) const {
  put_line(styled(printable(text), "1"));
}

void Terminal::warning(std::string_view text) const {
  for (const std::string& line : wrapped("warning: " + printable(text), columns_)) {
    put_line(styled(line, "33"));
  }
}

void Terminal::table(std::vector<std::vector<std::string>> rows) const {
  for (auto& row : rows) {
    for (std::string& cell : row) cell = printable(cell);
  }
  // The last cell of a row does not widen its column: nothing stands to its right.
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      if (widths.size() == i) widths.push_back(0);
      widths[i] = std::max(widths[i], display_width(row[i]));
    }
  }
  for (const auto& row : rows) {
    if (row.empty()) continue;
    std::string line(kIndent);
    for (std::size_t i = 0; i + 1 < row.size(); ++i) line += padded(row[i], widths[i]) + "  ";
    const std::size_t left = display_width(line);
    const std::size_t room = columns_ > left + kFewestColumns / 2 ? columns_ - left : columns_;
    for (const std::string& part : wrapped(row.back(), room)) {
      put_line(line + part);
      line.assign(left, ' ');
    }
  }
}

std::string Terminal::styled(std::string_view text, const char* code) const {
  if (!colours_) return std::string(text);
  return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
}

}  // namespace sape2::cli
