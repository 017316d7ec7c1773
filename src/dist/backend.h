#pragma once

#include "sape2/dist/team.h"

#include "dist/meeting.h"

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/version.h>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

namespace sape2::dist {

#if TORCH_VERSION_MAJOR >= 2
using Library = c10d::Backend;
#else
using Library = c10d::ProcessGroup;
#endif

/// Libraries for collective operations, each in a file of its own that a build may lack. A library
/// must give up by itself only after we did: `patience` is ours.
c10::intrusive_ptr<Library> make_gloo(const Meeting& meeting, const Place& place,
                                      const Patience& patience, bool several_hosts);
c10::intrusive_ptr<Library> make_nccl(const Meeting& meeting, const Place& place,
                                      const Patience& patience);
/// Once all sums have ended and nobody is lost: frees what NCCL holds on the GPU.
void close_nccl(Library& library);

/// What the library waits at most: longer than we do.
inline std::chrono::milliseconds longest_wait(const Patience& patience) {
  return std::chrono::milliseconds(static_cast<int64_t>(1000 * (patience.exchange + 60)));
}

}  // namespace sape2::dist
