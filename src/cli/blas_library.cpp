#include "cli/blas_library.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>

#include <filesystem>
#include <sstream>

namespace sape2::cli {
namespace {

// The library that provides a function of this process, asked for its other functions: those of its
// own dependencies count, those of unrelated libraries do not (several BLAS may be loaded).
class Provider {
 public:
  explicit Provider(const char* function) : symbol_(::dlsym(RTLD_DEFAULT, function)) {
    Dl_info info{};
    if (symbol_ == nullptr || ::dladdr(symbol_, &info) == 0) return;
    file_ = info.dli_fname;
    library_ = ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }
  ~Provider() {
    if (library_ != nullptr) ::dlclose(library_);
  }
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;

  template <class Function>
  Function* find(const char* name) const {
    if (library_ == nullptr) return nullptr;
    return reinterpret_cast<Function*>(::dlsym(library_, name));
  }

  // The real file, behind the links that Debian's alternatives are made of.
  std::string path() const {
    std::error_code error;
    const auto real = std::filesystem::canonical(file_, error);
    return error ? file_ : real.string();
  }

 private:
  void* symbol_ = nullptr;
  void* library_ = nullptr;
  std::string file_;
};

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
  const Provider provider("sgemm_");
  library.path = provider.path();
  if (auto* config = provider.find<const char*()>("openblas_get_config")) {
    library.name = first_words(config(), 2);
    if (auto* threads = provider.find<int()>("openblas_get_num_threads")) {
      library.threads = threads();
    }
  } else if (auto* version = provider.find<const char*()>("bli_info_get_version_str")) {
    library.name = std::string("BLIS ") + version();
    if (auto* threads = provider.find<long()>("bli_thread_get_num_threads")) {
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
  const Provider provider("sgemm_");
  if (auto* set = provider.find<void(int)>("openblas_set_num_threads")) set(threads);
}

}  // namespace sape2::cli
