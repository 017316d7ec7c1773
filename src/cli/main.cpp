// The program proper is a library that is loaded here: OpenMP reads from the environment what idle
// threads do when it is loaded itself, so that has to be settled before LibTorch comes in. By
// default they spin, which takes the cores from our own threads; a policy the user has set is kept.

#include "cli/program.h"

#include <dlfcn.h>
#include <malloc.h>

#include <cstdio>
#include <cstdlib>

int main(int count, char** arguments) {
  // Steps allocate the same large tensors again and again: memory that goes back to the system in
  // between would be cleared anew each time, which costs as much as some kernels.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::setenv("OMP_WAIT_POLICY", "PASSIVE", /*overwrite=*/0);
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
