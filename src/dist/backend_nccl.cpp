#include "dist/backend.h"

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <cstdlib>

namespace sape2::dist {

c10::intrusive_ptr<Library> make_nccl(const Meeting& meeting, const Place& place,
                                      const Patience& patience) {
  // We find out ourselves who was lost, and end the process: NCCL's own watchdog is not to do so
  // first, without a sentence. Older versions know the second name.
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
  ::setenv("NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
  const auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  options->timeout = longest_wait(patience);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(meeting.libraries, place.rank, place.size,
                                                     options);
}

}  // namespace sape2::dist
