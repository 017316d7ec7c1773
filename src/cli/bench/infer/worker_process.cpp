#include "cli/bench/infer/worker_process.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "cli/argument_pointers.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <system_error>

namespace sape2::cli {
namespace {

class FileActions {
 public:
  FileActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  void use(int descriptor, int as) {
    ::posix_spawn_file_actions_adddup2(&actions_, descriptor, as);
  }
  void discard(int descriptor) {
    ::posix_spawn_file_actions_addopen(&actions_, descriptor, "/dev/null", O_WRONLY, 0);
  }

  pid_t start(std::vector<std::string> command) const {
    pid_t process = -1;
    const int failed = ::posix_spawnp(&process, command.front().c_str(), &actions_, nullptr,
                                      argument_pointers(command).data(), environ);
    if (failed != 0) {
      throw Error("cannot start " + in_quotes(command.front()) + ": " +
                  std::generic_category().message(failed));
    }
    return process;
  }

 private:
  posix_spawn_file_actions_t actions_{};
};

}  // namespace

WorkerProcess::WorkerProcess(const std::vector<std::string>& command) : name_(command.front()) {
  // A socket rather than a pipe: writing to a program that has ended is an error, not a signal.
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw Error("cannot start " + in_quotes(name_) + ": there are no more sockets");
  }
  FileActions actions;
  actions.use(ends[1], STDIN_FILENO);
  actions.use(ends[1], STDOUT_FILENO);
  try {
    process_ = actions.start(command);
  } catch (...) {
    ::close(ends[0]);
    ::close(ends[1]);
    throw;
  }
  ::close(ends[1]);
  socket_ = ends[0];
}

WorkerProcess::~WorkerProcess() {
  ::close(socket_);
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
}

void WorkerProcess::write_line(const std::string& line) {
  const std::string text = line + "\n";
  if (::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(text.size())) {
    throw Error(in_quotes(name_) + " has ended before it was done");
  }
}

std::string WorkerProcess::read_line() {
  for (;;) {
    const std::size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    std::array<char, 4096> chunk{};
    const ssize_t count = ::recv(socket_, chunk.data(), chunk.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw Error(in_quotes(name_) + " has ended before it was done");
    buffer_.append(chunk.data(), static_cast<std::size_t>(count));
  }
}

FinishedProcess run_to_end(const std::vector<std::string>& command) {
  FileActions actions;
  actions.discard(STDOUT_FILENO);
  actions.discard(STDERR_FILENO);
  const auto begin = std::chrono::steady_clock::now();
  const pid_t process = actions.start(command);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  return {WIFEXITED(status) && WEXITSTATUS(status) == 0, time.count()};
}

}  // namespace sape2::cli
