#pragma once

#include "sape2/data/dataset.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

/// The page of `sape2 serve` as a folder of files that any web server can give out: the model runs
/// in the visitor's browser, compiled to WebAssembly, and nothing leaves it (docs/explorer.md).
namespace sape2::serve {

/// A model file that lies beside the page.
struct ExplorerModel {
  std::string name;
  std::filesystem::path file;
};

struct ExplorerOptions {
  std::vector<ExplorerModel> models;       ///< none: visitors bring their own
  const data::Dataset* dataset = nullptr;  ///< whose first images can be picked
  std::string split = "test";
  std::int64_t images = 24;  ///< of the data set
};

/// Whether this build has it (the component "explorer").
bool can_write_explorer();

/// Writes the folder. An older one is replaced; a folder with anything else in it is refused with
/// an Error, and so is a file that is no model.
void write_explorer(const std::filesystem::path& folder, const ExplorerOptions& options);

}  // namespace sape2::serve
