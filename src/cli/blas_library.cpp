#include "cli/blas_library.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>

#include <filesystem>
#include <sstream>

namespace sape2::cli {
namespace {

template <class Function>
Function* find_function(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

// The real file, behind the links that Debian's alternatives are made of.
std::string file_that_provides(void* symbol) {
  Dl_info info{};
  if (symbol == nullptr || ::dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return "";
  std::error_code error;
  const auto real = std::filesystem::canonical(info.dli_fname, error);
  return error ? info.dli_fname : real.string();
}

// "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH …" → "OpenBLAS 0.3.21"
std::string first_words(const std::string& text, int count) {
  std::istringstream words(text);
  std::string word, result;
  while (count-- > 0 && words >> word) result += (result.empty() ? "" : " ") + word;
  return result;
}

}  // namespace

BlasLibrary find_blas_library() {
  if (at::hasMKL()) {
    return {.name = at::get_mkl_version(), .path = "", .threads = at::get_num_threads()};
  }
  BlasLibrary library;
  library.path = file_that_provides(::dlsym(RTLD_DEFAULT, "sgemm_"));
  if (auto* config = find_function<const char*()>("openblas_get_config")) {
    library.name = first_words(config(), 2);
    if (auto* threads = find_function<int()>("openblas_get_num_threads")) {
      library.threads = threads();
    }
  } else if (auto* version = find_function<const char*()>("bli_info_get_version_str")) {
    library.name = std::string("BLIS ") + version();
    if (auto* threads = find_function<long()>("bli_thread_get_num_threads")) {
      library.threads = static_cast<int>(threads());
    }
  } else if (library.path.find("atlas") != std::string::npos) {
    library.name = "ATLAS";
  } else if (library.path.find("libblas.so") != std::string::npos) {
    library.name = "reference BLAS";
    library.is_slow = true;
  } else {
    library.name = "unknown";
  }
  return library;
}

void set_blas_threads(int threads) {
  if (auto* set = find_function<void(int)>("openblas_set_num_threads")) set(threads);
}

}  // namespace sape2::cli
