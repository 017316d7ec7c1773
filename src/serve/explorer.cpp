#include "sape2/serve/explorer.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/data/image.h"
#include "sape2/explain/picture.h"
#include "sape2/io/atomic_file.h"
#include "sape2/io/model_file.h"

#include "serve/page.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace sape2::serve {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const std::string kManifest = "explorer.json";

constexpr std::array kRewritten{"models", "images"};  // folders in the page's

// A model from an older page would be lost.
void refuse_own_models(const fs::path& folder, const std::vector<ExplorerModel>& models) {
  std::error_code error;
  for (const char* part : kRewritten) {
    const fs::path place = fs::weakly_canonical(folder / part, error);
    for (const ExplorerModel& model : models) {
      const fs::path way = fs::weakly_canonical(model.file, error).lexically_relative(place);
      if (way.empty() || *way.begin() == "..") continue;
      throw Error(in_quotes(model.file) + " lies in " + in_quotes(folder / part) +
                  ", which is written anew; move the model elsewhere, or give another folder");
    }
  }
}

// Empty, or one of ours.
void make_room(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) {
    throw Error(in_quotes(folder) + " is a file; give a folder to write the page to");
  }
  fs::create_directories(folder, error);
  if (error) throw Error("cannot make the folder " + in_quotes(folder) + ": " + error.message());
  if (!fs::is_empty(folder, error) && !fs::exists(folder / kManifest, error)) {
    throw Error("the folder " + in_quotes(folder) +
                " has other things in it; give an empty one, or one that the page was written to");
  }
  for (const char* part : kRewritten) {
    fs::remove_all(folder / part, error);
    fs::create_directories(folder / part, error);
    if (error) throw Error("cannot write to " + in_quotes(folder) + ": " + error.message());
  }
}

// Copies model files under their names, numbered where two are alike.
Json write_models(const fs::path& folder, const std::vector<ExplorerModel>& models) {
  Json list = Json::array();
  for (std::size_t i = 0; i < models.size(); ++i) {
    const std::string file = fmt::format("models/{}.safetensors", i);
    std::error_code error;
    fs::copy_file(models[i].file, folder / file, error);
    if (error) {
      throw Error("cannot copy " + in_quotes(models[i].file) + " to " + in_quotes(folder / file) +
                  ": " + error.message());
    }
    list.push_back({{"name", models[i].name},
                    {"file", file},
                    {"bytes", static_cast<std::int64_t>(fs::file_size(folder / file))}});
  }
  return list;
}

Json write_images(const fs::path& folder, const ExplorerOptions& options) {
  if (options.dataset == nullptr) return nullptr;
  Json list = Json::array();
  for (std::int64_t i = 0; i < std::min(options.images, options.dataset->size()); ++i) {
    const explain::Picture picture = explain::picture_of(*options.dataset, options.split, i);
    const std::string file = fmt::format("images/{}.png", i);
    data::write_png(folder / file, picture.image);
    list.push_back({{"name", picture.name}, {"file", file}, {"label", picture.label}});
  }
  return {{"name", options.dataset->name}, {"split", options.split}, {"files", std::move(list)}};
}

}  // namespace

bool can_write_explorer() {
  return !explorer_files().empty();
}

void write_explorer(const fs::path& folder, const ExplorerOptions& options) {
  if (!can_write_explorer()) {
    throw Error("this build has no page without a server: install emscripten and build again");
  }
  for (const ExplorerModel& model : options.models) {
    io::check_model(io::SafetensorsFile::open(model.file));
  }
  refuse_own_models(folder, options.models);
  make_room(folder);
  Json files = Json::array({"./", kManifest});
  for (const PageFile& file : explorer_files()) {
    const std::string name = file.path == "/" ? "index.html" : file.path.substr(1);
    io::write_file(folder / name, file.content);
    if (name != "offline.js") files.push_back(name);
  }
  Json models = write_models(folder, options.models);
  Json images = write_images(folder, options);
  for (const Json& model : models) files.push_back(model.at("file"));
  if (!images.is_null()) {
    for (const Json& image : images.at("files")) files.push_back(image.at("file"));
  }
  // Last: it says that the others are whole.
  const Json manifest{
      {"models", std::move(models)}, {"images", std::move(images)}, {"files", std::move(files)}};
  io::write_file(folder / kManifest,
                 manifest.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace sape2::serve
