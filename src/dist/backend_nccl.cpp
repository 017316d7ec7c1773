#include "sape2/base/error.h"

#include "dist/backend.h"

#include <torch/csrc/distributed/c10d/NCCLUtils.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <cstdlib>
#include <string>

namespace sape2::dist {
namespace {

// Parts of LibTorch's classes are NCCL's structs, which grow from version to version: with those of
// another version we would write beside them.
void compare_versions() {
  const std::string ours = std::to_string(NCCL_MAJOR) + "." + std::to_string(NCCL_MINOR) + ".";
  const std::string theirs = c10d::getNcclVersion();
  if (theirs.starts_with(ours)) return;
  throw Error("this build was made with the nccl.h of NCCL " + ours + std::to_string(NCCL_PATCH) +
              ", but LibTorch uses NCCL " + theirs +
              "; build again with -DSAPE2_NCCL_INCLUDE=, the folder of that version's nccl.h");
}

}  // namespace

c10::intrusive_ptr<Library> make_nccl(const Meeting& meeting, const Place& place,
                                      const Patience& patience) {
  compare_versions();
  // We find out ourselves who was lost, and end the process: NCCL's own watchdog is not to do so
  // first, without a sentence.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 2)
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
#else
  ::setenv("NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
#endif
  const auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  options->timeout = longest_wait(patience);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(meeting.libraries, place.rank, place.size,
                                                     options);
}

void close_nccl([[maybe_unused]] Library& library) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 2)
  static_cast<c10d::ProcessGroupNCCL&>(library).shutdown();
#endif
}

}  // namespace sape2::dist
