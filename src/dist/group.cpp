#include "sape2/dist/group.h"

#include "dist/backend.h"
#include "dist/team_state.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <new>
#include <set>

namespace sape2::dist {
namespace {

// Between two looks at whether somebody was lost.
constexpr auto kLook = std::chrono::seconds(1);

#ifdef SAPE2_GLOO
constexpr bool kHasGloo = true;
#else
constexpr bool kHasGloo = false;
#endif
#ifdef SAPE2_NCCL
constexpr bool kHasNccl = true;
#else
constexpr bool kHasNccl = false;
#endif

bool on_several_hosts(const std::vector<Member>& members) {
  return std::ranges::any_of(
      members, [&](const Member& member) { return member.host != members.front().host; });
}

// NCCL wants a GPU for each process; where processes share one, Gloo goes through host memory.
bool gpus_are_enough(const Team::State& state, c10::Device device) {
  const int64_t gpus = c10::impl::VirtualGuardImpl(device.type()).deviceCount();
  if (state.place.local_size <= gpus) return true;
  // A launcher may show each process a GPU of its own only.
  std::set<std::pair<std::string, std::string>> seen;
  for (const Member& member : state.members) {
    if (member.gpus.empty() || !seen.emplace(member.host, member.gpus).second) return false;
  }
  return true;
}

}  // namespace

struct Group::Backend {
  c10::intrusive_ptr<Library> library;
};

struct Group::Sum::Work {
  Team& team;
  c10::intrusive_ptr<c10d::Work> work;
  bool returns_at_once;  // waits on the GPU's stream
};

Support support_for(c10::Device device) {
  if (kHasGloo || (!device.is_cpu() && kHasNccl)) return {true, ""};
  if (device.is_cpu()) {
    return {false,
            "this build has no Gloo; install libgloo-dev and build against Debian's LibTorch"};
  }
  return {false,
          "this build has neither NCCL nor Gloo; build it with a LibTorch with CUDA and nccl.h"};
}

Group::Group(Team& team, c10::Device device) : team_(team), device_(device) {
  if (const Support support = support_for(device); !support.present) {
    throw Error("processes cannot train together: " + support.advice);
  }
  Team::State& state = *team.state_;
  const bool nccl = kHasNccl && !device.is_cpu() && gpus_are_enough(state, device);
  library_ = nccl ? "nccl" : "gloo";
  backend_ = std::make_shared<Backend>();
  try {
#ifdef SAPE2_NCCL
    if (nccl) backend_->library = make_nccl(state.meeting, state.place, state.patience);
#endif
#ifdef SAPE2_GLOO
    if (!nccl) {
      backend_->library =
          make_gloo(state.meeting, state.place, state.patience, on_several_hosts(state.members));
    }
#endif
  } catch (const std::exception& error) {
    team.find_lost(error.what());
  }
}

Group::~Group() {
  // Sums that will never end keep the library's threads: it must not be waited for.
  if (!team_.state_->left) new (std::nothrow) std::shared_ptr<Backend>(std::move(backend_));
#ifdef SAPE2_NCCL
  if (backend_ && recordable()) close_nccl(*backend_->library);
#endif
}

void Group::Sum::wait() {
  if (!work_) return;
  const std::shared_ptr<Work> work = std::move(work_);
  for (;;) {
    try {
      work->work->wait(work->returns_at_once ? std::chrono::milliseconds::zero()
                                             : std::chrono::milliseconds(kLook));
      return;
    } catch (const std::exception& error) {
      work->team.check();
      if (work->returns_at_once || work->work->isCompleted()) work->team.find_lost(error.what());
    }
  }
}

Group::Sum Group::begin_sum(const at::Tensor& tensor) {
  team_.count_exchange();
  std::vector<at::Tensor> tensors{tensor};
  try {
    return Sum(std::make_shared<Sum::Work>(
        Sum::Work{team_, backend_->library->allreduce(tensors), recordable()}));
  } catch (const std::exception& error) {
    team_.find_lost(error.what());
  }
}

void Group::broadcast(const at::Tensor& tensor) {
  team_.count_exchange();
  std::vector<at::Tensor> tensors{tensor};
  Sum sum;
  try {
    sum = Sum(std::make_shared<Sum::Work>(
        Sum::Work{team_, backend_->library->broadcast(tensors), recordable()}));
  } catch (const std::exception& error) {
    team_.find_lost(error.what());
  }
  sum.wait();
}

}  // namespace sape2::dist
