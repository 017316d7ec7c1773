#include "cli/study/companions.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "cli/argument_pointers.h"
#include "cli/program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <system_error>

namespace sape2::cli {
namespace {

std::vector<std::string> own_arguments() {
  std::ifstream stream("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string word; std::getline(stream, word, '\0');) arguments.push_back(word);
  return arguments;
}

// The last line of what a process printed: where it failed, its sentence.
std::string last_line(const std::filesystem::path& log) {
  std::ifstream stream(log);
  std::string last;
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace

Companions::~Companions() {
  for (const Process& process : running_) ::kill(process.id, SIGTERM);
  wait();
}

void Companions::start(const std::vector<std::string>& more, const std::filesystem::path& log) {
  std::vector<std::string> arguments = own_arguments();
  arguments.insert(arguments.end(), more.begin(), more.end());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failed = ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr,
                                   argument_pointers(arguments).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    throw Error("cannot start another process with its output in " + in_quotes(log) + ": " +
                std::generic_category().message(failed));
  }
  running_.push_back({child, log});
}

std::vector<std::string> Companions::wait() {
  std::vector<std::string> failures;
  for (const Process& process : running_) {
    int status = 0;
    while (::waitpid(process.id, &status, 0) < 0 && errno == EINTR) {
    }
    const bool good =
        WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kExitInterrupted);
    if (good) continue;
    failures.push_back(WIFSIGNALED(status)
                           ? "a process beside this one was killed; its output is in " +
                                 in_quotes(process.log)
                           : "a process beside this one ended: " + last_line(process.log));
  }
  running_.clear();
  return failures;
}

void end_with(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::raise(SIGTERM);  // it was quicker
}

}  // namespace sape2::cli
