#include "data/get/tar.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "data/text.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::uint64_t kLargestMember = std::uint64_t{512} << 20;
using Header = std::array<std::uint8_t, kBlock>;

class GzipStream {
 public:
  explicit GzipStream(const fs::path& path)
      : path_(path), file_(gzopen(path.c_str(), "rb"), gzclose) {
    if (!file_) throw Error(fmt::format("cannot read {}", in_quotes(path)));
    gzbuffer(file_.get(), 1 << 18);
  }

  void read(std::uint8_t* target, std::size_t count) {
    if (gzfread(target, 1, count, file_.get()) != count) fail("truncated or damaged");
  }

  void skip(std::uint64_t count) {
    std::array<std::uint8_t, 1 << 14> ignored;
    for (; count > 0; count -= std::min<std::uint64_t>(count, ignored.size())) {
      read(ignored.data(), std::min<std::uint64_t>(count, ignored.size()));
    }
  }

  [[noreturn]] void fail(const char* what) const {
    throw Error(fmt::format("the archive {} is {}", in_quotes(path_), what));
  }

 private:
  fs::path path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
};

// Numbers are octal digits, ended by a blank or a zero byte.
std::uint64_t octal(const std::uint8_t* digits, std::size_t count) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (digits[i] == ' ' && value == 0) continue;
    if (digits[i] < '0' || digits[i] > '7') break;
    value = value * 8 + (digits[i] - '0');
  }
  return value;
}

bool checksum_fits(const Header& header) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < header.size(); ++i) {
    sum += i >= 148 && i < 156 ? ' ' : header[i];
  }
  return sum == octal(header.data() + 148, 8);
}

std::string file_name(const Header& header) {
  const auto* text = reinterpret_cast<const char*>(header.data());
  const std::string path(text, strnlen(text, 100));
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace

void read_tar_gz(const fs::path& path, const std::function<bool(const std::string&)>& wanted,
                 const std::function<void(const std::string&, const Bytes&)>& take) {
  GzipStream stream(path);
  for (;;) {
    Header header;
    stream.read(header.data(), header.size());
    if (std::all_of(header.begin(), header.end(), [](std::uint8_t byte) { return byte == 0; })) {
      return;
    }
    if (!checksum_fits(header)) stream.fail("no tar archive, or damaged");
    const std::uint64_t size = octal(header.data() + 124, 12);
    if (size > kLargestMember) stream.fail("not one of ours: a file in it is too large");
    const std::uint64_t padding = (kBlock - size % kBlock) % kBlock;
    const std::string name = file_name(header);
    const bool plain = header[156] == '0' || header[156] == 0;
    if (plain && wanted(name)) {
      Bytes content(size);
      stream.read(content.data(), content.size());
      take(name, content);
      stream.skip(padding);
    } else {
      stream.skip(size + padding);
    }
  }
}

}  // namespace sape2::data
