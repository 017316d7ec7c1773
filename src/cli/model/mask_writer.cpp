#include "cli/model/mask_writer.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "cli/output_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace sape2::cli {
namespace fs = std::filesystem;

MaskWriter::MaskWriter(const std::string& folder, std::int64_t classes, std::vector<fs::path> read)
    : folder_(folder), read_(std::move(read)) {
  if (folder.empty()) return;
  std::error_code error;
  is_new_ = fs::create_directories(folder_, error);
  if (error) throw Error("cannot make the folder " + in_quotes(folder_) + ": " + error.message());
  for (std::int64_t i = 0; i < classes; ++i) colours_.push_back(data::mask_colour(i));
}

MaskWriter::~MaskWriter() {
  std::error_code ignored;
  if (is_new_) fs::remove(folder_, ignored);  // only if it is empty
}

std::vector<std::string> MaskWriter::write(const explain::Picture& picture,
                                           const data::Image& mask) {
  if (folder_.empty()) return {};
  const std::string name = name_for(picture);
  const auto mask_file = folder_ / (name + "-mask.png");
  const auto overlay_file = folder_ / (name + "-overlay.png");
  for (const fs::path& file : {mask_file, overlay_file}) refuse_to_overwrite(file.native(), read_);
  data::write_mask(mask_file, mask, colours_);
  data::write_png(overlay_file, data::overlay(picture.image, mask));
  return {mask_file.native(), overlay_file.native()};
}

// "cat" of photos/cat.jpg, "oxford-pets_test_3" of oxford-pets:test:3.
std::string MaskWriter::name_for(const explain::Picture& picture) {
  std::error_code error;
  std::string name =
      fs::exists(picture.name, error) ? fs::path(picture.name).stem().native() : picture.name;
  std::ranges::replace_if(
      name, [](char c) { return c == ':' || c == '/'; }, '_');
  std::string unique = name;
  for (int i = 2; !used_.insert(unique).second; ++i) unique = fmt::format("{}-{}", name, i);
  return unique;
}

}  // namespace sape2::cli
