// The program proper is a library that is loaded here: OpenMP and others below LibTorch read the
// environment when they are loaded themselves, so that it has to be settled before.

#include "sape2/base/start_up.h"

#include "cli/program.h"
#include "cli/standard_streams.h"

#include <dlfcn.h>
#include <malloc.h>

#include <cstdio>

int main(int count, char** arguments) {
  sape2::cli::open_standard_streams();
  // Steps allocate the same large tensors again and again: memory that goes back to the system in
  // between would be cleared anew each time, which costs as much as some kernels.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  sape2::base::settle_environment();
  void* library = ::dlopen("libsape2_cli.so", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    std::fprintf(stderr, "sape2: cannot load the program: %s\n", ::dlerror());
    return sape2::cli::kExitFailure;
  }
  const auto run =
      reinterpret_cast<decltype(&sape2_run_program)>(::dlsym(library, "sape2_run_program"));
  if (run == nullptr) {
    std::fprintf(stderr, "sape2: libsape2_cli.so is of another version\n");
    return sape2::cli::kExitFailure;
  }
  return run(count, arguments);
}
