#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace sape2::cli {

/// A program that answers lines with lines; it is ended with the object.
class WorkerProcess {
 public:
  /// Throws Error if it cannot be started. Its standard error is ours.
  explicit WorkerProcess(const std::vector<std::string>& command);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  /// Throws Error if the program has ended.
  void write_line(const std::string& line);
  std::string read_line();

 private:
  pid_t process_ = -1;
  int socket_ = -1;
  std::string name_, buffer_;
};

/// A program that ran to its end: what it took.
struct FinishedProcess {
  bool succeeded = false;
  double milliseconds = 0;
};

/// Runs a program without its output.
FinishedProcess run_to_end(const std::vector<std::string>& command);

}  // namespace sape2::cli
