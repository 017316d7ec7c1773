#include "data/tiny_files.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cstring>
#include <stdexcept>

namespace sape2::data::test {

CifarLayout tiny_cifar10() {
  CifarLayout layout = cifar10_layout();
  layout.records_a_file_train = layout.records_a_file_test = 20;
  return layout;
}

CifarLayout tiny_cifar100() {
  CifarLayout layout = cifar100_layout();
  layout.records_a_file_train = 200;
  layout.records_a_file_test = 100;
  return layout;
}

IdxLayout tiny_idx() {
  IdxLayout layout = fashion_mnist_layout();
  layout.train_images = 30;
  layout.test_images = 20;
  return layout;
}

std::uint8_t cifar_byte(std::int64_t record, std::int64_t place) {
  return static_cast<std::uint8_t>(record * 31 + place * 7);
}

Bytes cifar_records(const CifarLayout& layout, std::int64_t records, std::int64_t first) {
  const auto classes = static_cast<std::int64_t>(layout.class_names.size());
  Bytes bytes;
  for (std::int64_t i = first; i < first + records; ++i) {
    if (layout.label_bytes == 2) bytes.push_back(static_cast<std::uint8_t>(i % classes / 5));
    bytes.push_back(static_cast<std::uint8_t>(i % classes));
    for (std::int64_t place = 0; place < 3072; ++place) bytes.push_back(cifar_byte(i, place));
  }
  return bytes;
}

void write_cifar(const CifarLayout& layout, const std::filesystem::path& folder) {
  create_folder(folder);
  for (const Split split : {Split::train, Split::test}) {
    std::int64_t first = 0;
    for (const std::string& file : layout.files(split)) {
      write_file(folder / file, cifar_records(layout, layout.records_a_file(split), first));
      first += layout.records_a_file(split);
    }
  }
}

Bytes idx_bytes(const std::vector<std::uint32_t>& shape, const Bytes& content) {
  Bytes bytes{0, 0, 8, static_cast<std::uint8_t>(shape.size())};
  for (const std::uint32_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      bytes.push_back(static_cast<std::uint8_t>(size >> shift));
    }
  }
  bytes.insert(bytes.end(), content.begin(), content.end());
  return bytes;
}

void write_idx(const IdxLayout& layout, const std::filesystem::path& folder) {
  create_folder(folder);
  for (const Split split : {Split::train, Split::test}) {
    const auto count = static_cast<std::uint32_t>(layout.images(split));
    Bytes pixels(count * 28 * 28), labels(count);
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 13);
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::uint8_t>(i % 10);
    write_file(folder / (idx_images_file(split) + ".gz"),
               gzipped(idx_bytes({count, 28, 28}, pixels)));
    write_file(folder / (idx_labels_file(split) + ".gz"), gzipped(idx_bytes({count}, labels)));
  }
}

Bytes gzipped(const Bytes& bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  Bytes result(deflateBound(&stream, bytes.size()) + 64);
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = result.data();
  stream.avail_out = static_cast<uInt>(result.size());
  deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}

Bytes tar_header(const std::string& name, std::uint64_t size, char type) {
  char header[512] = {};
  std::strncpy(header, name.c_str(), 99);
  std::strcpy(header + 100, "0000644");
  std::strcpy(header + 124, fmt::format("{:011o}", size).c_str());
  header[156] = type;
  if (type != '0') std::strcpy(header + 157, "one.bin");  // where a link leads
  std::strcpy(header + 257, "ustar");
  std::memset(header + 148, ' ', 8);
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::strcpy(header + 148, fmt::format("{:06o}", sum).c_str());
  return {header, header + sizeof header};
}

Bytes tar_gz(const std::vector<std::pair<std::string, Bytes>>& members) {
  Bytes tar;
  for (const auto& [name, content] : members) {
    const Bytes header = tar_header(name, content.size(), '0');
    tar.insert(tar.end(), header.begin(), header.end());
    tar.insert(tar.end(), content.begin(), content.end());
    tar.resize((tar.size() + 511) / 512 * 512);
  }
  tar.resize(tar.size() + 1024);
  return gzipped(tar);
}

}  // namespace sape2::data::test
