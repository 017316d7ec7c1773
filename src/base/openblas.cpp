#include "sape2/base/openblas.h"

#include <dlfcn.h>

#include <filesystem>
#include <sstream>

namespace sape2::base {
namespace {

// The library that provides a function of this process, asked for its other functions: those of its
// own dependencies count, those of unrelated libraries do not (several BLAS may be loaded).
class Provider {
 public:
  explicit Provider(const char* function) {
    void* symbol = ::dlsym(RTLD_DEFAULT, function);
    Dl_info info{};
    if (symbol == nullptr || ::dladdr(symbol, &info) == 0) return;
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

LoadedBlas find_loaded_blas() {
  const Provider provider("sgemm_");
  LoadedBlas blas;
  blas.path = provider.path();
  if (auto* config = provider.find<const char*()>("openblas_get_config")) {
    blas.version = first_words(config(), 2);
    if (auto* core = provider.find<const char*()>("openblas_get_corename")) blas.core = core();
    if (auto* threads = provider.find<int()>("openblas_get_num_threads")) blas.threads = threads();
  } else if (auto* version = provider.find<const char*()>("bli_info_get_version_str")) {
    blas.version = std::string("BLIS ") + version();
    if (auto* threads = provider.find<long()>("bli_thread_get_num_threads"))
      blas.threads = static_cast<int>(threads());
  }
  return blas;
}

void set_blas_threads(int threads) {
  const Provider provider("sgemm_");
  if (auto* set = provider.find<void(int)>("openblas_set_num_threads")) set(threads);
}

bool choose_openblas_kernels_again() {
  // Not in its manual, but exported by every build that has the kernels of several CPUs: what its
  // own start calls, and its counterpart.
  const Provider provider("sgemm_");
  auto* forget = provider.find<void()>("gotoblas_dynamic_quit");
  auto* choose = provider.find<void()>("gotoblas_dynamic_init");
  if (forget == nullptr || choose == nullptr) return false;
  forget();
  choose();
  return true;
}

}  // namespace sape2::base
