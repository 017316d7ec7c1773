#pragma once

#include "sape2/dist/team.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <string>

namespace sape2::dist {

/// Sums over the processes of a team: NCCL between GPUs, Gloo otherwise. All processes must ask for
/// the same in the same order. Results are the same bits on every rank.
class Group {
 public:
  /// Tensors must lie on `device`. Throws Error if this build has no library for it.
  Group(Team& team, c10::Device device);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Team& team() { return team_; }
  int rank() const { return team_.rank(); }
  int size() const { return team_.size(); }
  c10::Device device() const { return device_; }
  const std::string& library() const { return library_; }  ///< "nccl" or "gloo"
  /// Whether a CUDA graph can record the sums.
  bool recordable() const { return library_ == "nccl"; }

  /// A sum on its way.
  class Sum {
   public:
    Sum() = default;
    /// Waits (on a GPU: makes the current stream wait). Throws PeerLost.
    void wait();

   private:
    friend class Group;
    struct Work;
    explicit Sum(std::shared_ptr<Work> work) : work_(std::move(work)) {}
    std::shared_ptr<Work> work_;
  };

  /// Begins to add up a contiguous tensor over all processes, in place.
  Sum begin_sum(const at::Tensor& tensor);
  void sum(const at::Tensor& tensor) { begin_sum(tensor).wait(); }
  /// Gives all processes rank 0's values.
  void broadcast(const at::Tensor& tensor);

 private:
  struct Backend;
  Team& team_;
  c10::Device device_;
  std::string library_;
  std::shared_ptr<Backend> backend_;
};

/// Whether this build has a library for sums between processes on a device, and if not, what to do:
/// one clause.
struct Support {
  bool present = false;
  std::string advice;
};
Support support_for(c10::Device device);

}  // namespace sape2::dist
