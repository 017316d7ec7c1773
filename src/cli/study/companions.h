#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace sape2::cli {

/// Processes of this program with the same command line, which work beside this one. Those that
/// still run when the object goes are asked to stop, and waited for.
class Companions {
 public:
  Companions() = default;
  ~Companions();
  Companions(const Companions&) = delete;
  Companions& operator=(const Companions&) = delete;

  /// Starts one with `more` after the arguments of this process; what it prints goes to `log`.
  void start(const std::vector<std::string>& more, const std::filesystem::path& log);

  /// Waits until all have ended, and returns a sentence for each that failed.
  std::vector<std::string> wait();

 private:
  struct Process {
    pid_t id;
    std::filesystem::path log;
  };
  std::vector<Process> running_;
};

/// Called by a companion: from now on it is asked to stop when `parent` ends, however that ends.
void end_with(pid_t parent);

}  // namespace sape2::cli
