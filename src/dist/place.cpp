#include "sape2/dist/place.h"

#include "sape2/base/error.h"
#include "sape2/base/hash.h"
#include "sape2/base/in_quotes.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace sape2::dist {
namespace {

constexpr int kMostProcesses = 1 << 16;
// Where a launcher names no port, the job's name decides: two jobs of one machine seldom meet.
constexpr int kFirstPort = 20000, kPorts = 10000;

// Under which names a launcher says what we need.
struct Launcher {
  const char* name;
  const char *rank, *size, *local_rank, *local_size;
  const char* job;  // tells jobs of one machine apart; nullptr: none
};

constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", nullptr},
    // Before Slurm, which an mpirun may itself use to reach other machines.
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_ID"},
    // Only srun sets these; a script of sbatch, which runs once, has others.
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE",
     "SLURM_JOB_ID"},
};

int number_in(const std::string& name, const std::string& text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw Error("the variable " + name + " is " + in_quotes(text) +
                ", expected a whole number from " + std::to_string(least) + " to " +
                std::to_string(most));
  }
  return value;
}

class Reader {
 public:
  Reader(const Variables& variables, const Launcher& launcher)
      : variables_(variables), launcher_(launcher) {}

  Place read() const {
    Place place;
    place.launcher = launcher_.name;
    place.size = number_in(launcher_.size, needed(launcher_.size), 1, kMostProcesses);
    place.rank = number_in(launcher_.rank, needed(launcher_.rank), 0, kMostProcesses);
    if (place.rank >= place.size) {
      throw Error("the variable " + std::string(launcher_.rank) + " is " +
                  std::to_string(place.rank) + ", but there are " + std::to_string(place.size) +
                  " processes (" + launcher_.size + "): ranks begin at 0");
    }
    place.local_rank = optional(launcher_.local_rank, 0, 0);
    place.local_size = optional(launcher_.local_size, place.local_rank + 1, 1);
    if (place.size == 1) return place;
    place.address = address(place);
    place.port = port();
    place.store_is_there = variables_("TORCHELASTIC_USE_AGENT_STORE") == "True";
    place.restarts = restarts(variables_);
    return place;
  }

 private:
  std::string needed(const char* name) const {
    if (const auto text = variables_(name)) return *text;
    throw Error("the variable " + std::string(launcher_.rank) + " of " + launcher_.name +
                " is set, but " + name +
                " is not; start all processes with torchrun, srun, "
                "mpirun or `sape2 launch`");
  }

  int optional(const char* name, int otherwise, int least) const {
    const auto text = variables_(name);
    if (!text) return otherwise;
    // Slurm writes "4(x2),3" for 4, 4 and 3.
    return number_in(name, text->substr(0, text->find_first_of("(,")), least, kMostProcesses);
  }

  std::string address(const Place& place) const {
    if (const auto text = variables_("MASTER_ADDR")) return *text;
    for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
      const auto list = variables_(name);
      if (list && launcher_.name == std::string("Slurm")) return first_host(*list);
    }
    if (place.local_size == place.size) return "127.0.0.1";
    throw Error(
        "there are processes on several machines, but the variable MASTER_ADDR, the "
        "machine of rank 0, is not set");
  }

  int port() const {
    if (const auto text = variables_("MASTER_PORT")) {
      return number_in("MASTER_PORT", *text, 1, 65535);
    }
    const auto job = launcher_.job == nullptr ? std::nullopt : variables_(launcher_.job);
    if (!job) {
      throw Error("the variable MASTER_PORT, the port at which the processes meet, is not set");
    }
    return kFirstPort + static_cast<int>(base::fnv1a(*job) % kPorts);
  }

  const Variables& variables_;
  const Launcher& launcher_;
};

std::optional<std::string> own_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace

std::optional<Place> find_place(const Variables& variables) {
  for (const Launcher& launcher : kLaunchers) {
    // RANK alone is torchrun's with something missing; the others need all of theirs.
    const bool all =
        variables(launcher.rank) && variables(launcher.size) && variables(launcher.local_rank);
    const bool of_torchrun = launcher.job == nullptr && variables(launcher.rank);
    if (!all && !of_torchrun) continue;
    Place place = Reader(variables, launcher).read();
    return place.size > 1 ? std::optional(std::move(place)) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<Place> find_place() {
  return find_place(own_variable);
}

int restarts(const Variables& variables) {
  int most = 0;
  for (const char* name : {"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"}) {
    if (const auto text = variables(name)) {
      most = std::max(most, number_in(name, *text, 0, kMostProcesses));
    }
  }
  return most;
}

int restarts() {
  return restarts(own_variable);
}

std::string first_host(const std::string& list) {
  const std::size_t end = list.find_first_of(",[");
  if (end == std::string::npos || list[end] == ',') return list.substr(0, end);
  const std::size_t number_end = list.find_first_of(",-]", end);
  return list.substr(0, end) + list.substr(end + 1, number_end - end - 1);
}

}  // namespace sape2::dist
