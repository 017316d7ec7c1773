#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace sape2::cli {

/// Processes of this program on this machine, with the variables by which dist::find_place() knows
/// them. They end with this one, however it ends.
class LocalRanks {
 public:
  struct Plan {
    int processes = 1;
    int machines = 1;
    int machine = 0;
    std::string address = "127.0.0.1";
    int port = 0;  ///< 0: a free one of this machine, another at each start
  };

  LocalRanks(std::vector<std::string> command, Plan plan)
      : command_(std::move(command)), plan_(std::move(plan)) {}

  struct Ending {
    int exit_code = 0;     ///< that of the first that did not end well
    std::string sentence;  ///< about one that was killed; empty: they told themselves
  };

  /// Starts them and waits for all. When one fails, the others get a while to say so and end. A
  /// stop that is asked of this process is passed on.
  Ending run(int attempt);

 private:
  pid_t start(int local_rank, int port, int attempt) const;

  std::vector<std::string> command_;
  Plan plan_;
};

}  // namespace sape2::cli
