#pragma once

#include <functional>
#include <optional>
#include <string>

/// Processes that work together, on one machine or on many.
namespace sape2::dist {

/// Where one process stands among those that were started together, as its launcher says.
struct Place {
  int rank = 0;  ///< 0 … size − 1; rank 0 leads
  int size = 1;
  int local_rank = 0;  ///< among those on the same machine
  int local_size = 1;
  std::string address;  ///< where they meet: the machine of rank 0
  int port = 0;
  bool store_is_there = false;  ///< the launcher keeps the store, so rank 0 must not
  int restarts = 0;             ///< times the launcher has started them anew
  std::string launcher;         ///< for people: "torchrun", "Slurm", "mpirun"
};

/// The value of an environment variable, if it is set.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;

/// What the variables of torchrun (`RANK`, …), `sape2 launch` (the same), Slurm's srun or an mpirun
/// say, looked for in this order; nothing if there are none, or only one process. Throws Error
/// if they contradict each other or something is missing. docs/distributed.md lists them.
std::optional<Place> find_place(const Variables& variables);

/// The same for the environment of this process.
std::optional<Place> find_place();

/// How often the launcher has started this process anew, whether or not it has company.
int restarts(const Variables& variables);
int restarts();

/// The first machine of one of Slurm's lists: "gpu[07-09,12],login1" is "gpu07".
std::string first_host(const std::string& list);

}  // namespace sape2::dist
