#include "train/replicas.h"

#include "sape2/base/error.h"
#include "sape2/dist/group.h"
#include "sape2/io/crc32c.h"
#include "sape2/train/training_step.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

namespace sape2::train {
namespace {

uint32_t checksum(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.cpu();
  return io::crc32c({static_cast<const std::byte*>(bytes.data_ptr()), bytes.nbytes()});
}

}  // namespace

void share_state(dist::Group& group, TrainingStep& training, Progress& progress) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& flat : training.flat_state()) group.broadcast(flat);
  at::Tensor numbers = at::tensor({static_cast<double>(progress.step), progress.epoch_loss,
                                   progress.interval_loss, progress.best, progress.seconds},
                                  at::kDouble)
                           .to(group.device());
  group.broadcast(numbers);
  numbers = numbers.cpu();
  const double* number = numbers.data_ptr<double>();
  progress = {.step = static_cast<int64_t>(number[0]),
              .epoch_loss = number[1],
              .interval_loss = number[2],
              .best = number[3],
              .seconds = number[4]};
  training.restored();
}

void check_replicas(dist::Group& group, const TrainingStep& training, int64_t epoch) {
  const at::NoGradGuard no_grad;
  at::Tensor sums = at::zeros({group.size()}, at::kLong);
  sums[group.rank()] = static_cast<int64_t>(checksum(training.flat_state().front()));
  sums = sums.to(group.device());
  group.sum(sums);
  sums = sums.cpu();
  const int64_t* sum = sums.data_ptr<int64_t>();
  for (int rank = 1; rank < group.size(); ++rank) {
    if (sum[rank] == sum[0]) continue;
    throw Error(fmt::format(
        "after epoch {} the weights of {} are not those of rank 0: its machine computes other "
        "numbers from the same gradients; leave it out and go on from the last checkpoint",
        epoch, group.team().name_of(rank)));
  }
}

}  // namespace sape2::train
