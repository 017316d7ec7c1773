#include "cli/info/model_summary.h"

#include "sape2/io/model_file.h"

#include <set>
#include <string_view>

namespace sape2::cli {

ModelSummary summarise_model(const std::filesystem::path& path) {
  const auto file = io::SafetensorsFile::open(path);
  ModelSummary summary;
  summary.path = path;
  summary.config = io::check_model(file);
  summary.file_bytes = std::filesystem::file_size(path);
  std::set<std::string_view> types;
  for (const io::TensorView& tensor : file.tensors()) {
    types.insert(io::dtype_name(tensor.dtype));
    summary.parameters +=
        static_cast<std::int64_t>(tensor.bytes.size() / io::dtype_size(tensor.dtype));
  }
  for (const std::string_view type : types) {
    summary.weight_types += (summary.weight_types.empty() ? "" : ", ") + std::string(type);
  }
  summary.metadata = io::further_metadata(file);
  return summary;
}

}  // namespace sape2::cli
