#include "cli/run_sape2.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace sape2::cli::test {
namespace {

struct Pipe {
  Pipe() {
    if (::pipe(ends) != 0) throw std::runtime_error("pipe failed");
  }
  int ends[2];
};

std::string read_to_end(int descriptor) {
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = ::read(descriptor, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(count));
  }
  ::close(descriptor);
  return text;
}

[[noreturn]] void become(const char* program, const Arguments& arguments,
                         const Environment& variables) {
  for (const auto& [name, value] : variables) {
    value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
  }
  std::vector<char*> pointers = {const_cast<char*>(program)};
  for (const std::string& argument : arguments) {
    pointers.push_back(const_cast<char*>(argument.c_str()));
  }
  pointers.push_back(nullptr);
  ::execv(program, pointers.data());
  ::_exit(127);
}

int wait_for(pid_t process) {
  int status = 0;
  ::waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Arguments with(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Outcome run_sape2(const Arguments& arguments, const Environment& variables) {
  return run_program(SAPE2_PROGRAM, arguments, variables);
}

Outcome run_program(const char* program, const Arguments& arguments, const Environment& variables) {
  Pipe out, err;
  const pid_t process = ::fork();
  if (process == 0) {
    ::dup2(out.ends[1], STDOUT_FILENO);
    ::dup2(err.ends[1], STDERR_FILENO);
    for (const int end : {out.ends[0], out.ends[1], err.ends[0], err.ends[1]}) ::close(end);
    become(program, arguments, variables);
  }
  ::close(out.ends[1]);
  ::close(err.ends[1]);
  Outcome outcome;
  std::thread errors([&] { outcome.err = read_to_end(err.ends[0]); });
  outcome.out = read_to_end(out.ends[0]);
  errors.join();
  outcome.exit_code = wait_for(process);
  return outcome;
}

bool has_terminals() {
  int ends[2];
  if (::openpty(&ends[0], &ends[1], nullptr, nullptr, nullptr) != 0) return false;
  ::close(ends[0]);
  ::close(ends[1]);
  return true;
}

Outcome run_sape2_on_terminal(const Arguments& arguments, const Environment& variables) {
  int terminal = -1;
  const pid_t process = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (process == 0) become(SAPE2_PROGRAM, arguments, variables);
  if (process < 0) throw std::runtime_error("forkpty failed");
  Outcome outcome;
  outcome.out = read_to_end(terminal);
  outcome.exit_code = wait_for(process);
  return outcome;
}

void expect_mistake(const Outcome& outcome, int exit_code, const std::string& part) {
  EXPECT_EQ(outcome.exit_code, exit_code);
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.err.starts_with("sape2: ")) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  EXPECT_NE(outcome.err.find(part), std::string::npos)
      << "\"" << part << "\" is not in: " << outcome.err;
}

}  // namespace sape2::cli::test
