#include "cli/bench/attention/child_process.h"

#include "cli/argument_pointers.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace sape2::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> changed_environment(const std::string& variable,
                                             const std::string& value) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!text.starts_with(variable + "=")) all.push_back(text);
  }
  all.push_back(variable + "=" + value);
  return all;
}

/// Reads to the end; false where time ran out first.
bool read_all(int descriptor, Clock::time_point end, std::string& text) {
  std::array<char, 4096> buffer{};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    pollfd waiting{descriptor, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) == 0) return false;
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count <= 0) return count == 0;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace

std::optional<std::string> output_of_self(const std::vector<std::string>& arguments,
                                          const std::string& variable, const std::string& value,
                                          std::chrono::seconds limit) {
  std::vector<std::string> words = {"sape2"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  auto environment = changed_environment(variable, value);
  std::array<int, 2> pipe_ends{};
  if (::pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return std::nullopt;

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed =
      ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argument_pointers(words).data(),
                    argument_pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(pipe_ends[1]);

  std::string text;
  const bool complete = failed == 0 && read_all(pipe_ends[0], Clock::now() + limit, text);
  ::close(pipe_ends[0]);
  if (failed != 0) return std::nullopt;
  if (!complete) ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  const bool succeeded = complete && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return succeeded ? std::optional(text) : std::nullopt;
}

}  // namespace sape2::cli
