#include "cli/model_path.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

namespace sape2::cli {
namespace fs = std::filesystem;

fs::path model_file_of(const std::string& argument) {
  std::error_code error;
  if (!fs::is_directory(argument, error)) return argument;
  for (const char* name : {"best.safetensors", "last.safetensors"}) {
    if (fs::exists(fs::path(argument) / name, error)) return fs::path(argument) / name;
  }
  throw Error("the folder " + in_quotes(argument) +
              " holds no best.safetensors; give a model file or the folder of a run");
}

}  // namespace sape2::cli
