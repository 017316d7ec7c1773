#include "cli/bench/meters/process_memory.h"

#include "cli/argument_pointers.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

namespace sape2::cli {
namespace {

std::optional<std::int64_t> high_water_mark(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string word; status >> word;) {
    std::int64_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes << 10;
  }
  return std::nullopt;
}

bool is_exit_event(int status) {
  return status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8);
}

}  // namespace

// wait4() would say too much: to its ru_maxrss belongs what the parent held when it forked. The
// program's own mark is gone once it has ended, so it is stopped on the way out.
std::optional<std::int64_t> peak_bytes_of(const std::vector<std::string>& command) {
  std::vector<std::string> words = command;
  const std::vector<char*> pointers = argument_pointers(words);
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  const pid_t process = ::fork();
  if (process == 0) {
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0) {
      ::execvp(pointers[0], pointers.data());
    }
    ::_exit(127);
  }
  ::close(nowhere);
  if (process < 0) return std::nullopt;
  std::optional<std::int64_t> peak;
  bool watched = false;
  for (int status = 0;;) {
    if (::waitpid(process, &status, 0) < 0) {
      if (errno == EINTR) continue;
      return std::nullopt;
    }
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? peak : std::nullopt;
    }
    int signal = 0;
    if (is_exit_event(status)) {
      peak = high_water_mark(process);
    } else if (!watched) {  // it has just become the program
      watched = true;
      ::ptrace(PTRACE_SETOPTIONS, process, nullptr, PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL);
    } else {
      signal = WSTOPSIG(status);
    }
    ::ptrace(PTRACE_CONT, process, nullptr, signal);
  }
}

}  // namespace sape2::cli
