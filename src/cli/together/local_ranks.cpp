#include "cli/together/local_ranks.h"

#include "sape2/base/error.h"

#include "cli/argument_pointers.h"
#include "cli/program.h"
#include "cli/stop_signal.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <system_error>
#include <thread>

namespace sape2::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPoll = std::chrono::milliseconds(20);
// Longer than a team needs to find out who was lost.
constexpr auto kGrace = std::chrono::seconds(30);

// One that is free now. Another process may take it first; then rank 0 says so.
int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = socket >= 0 &&
                     ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  if (socket >= 0) ::close(socket);
  if (!bound) {
    throw Error("this machine has no free port: " + std::generic_category().message(error));
  }
  return ntohs(address.sin_port);
}

// The environment of this process with some variables set.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!variables.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

struct Ended {
  bool well = false;
  int exit_code = 0;
  int signal = 0;  // 0: it left by itself
};

Ended ended_with(int status) {
  if (WIFSIGNALED(status)) return {false, kExitFailure, WTERMSIG(status)};
  const int code = WEXITSTATUS(status);
  return {code == kExitSuccess || code == kExitInterrupted, code, 0};
}

}  // namespace

pid_t LocalRanks::start(int local_rank, int port, int attempt) const {
  const auto text = [](int number) { return std::to_string(number); };
  std::vector<std::string> environment =
      environment_with({{"RANK", text(plan_.machine * plan_.processes + local_rank)},
                        {"WORLD_SIZE", text(plan_.machines * plan_.processes)},
                        {"LOCAL_RANK", text(local_rank)},
                        {"LOCAL_WORLD_SIZE", text(plan_.processes)},
                        {"MASTER_ADDR", plan_.address},
                        {"MASTER_PORT", text(port)},
                        {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                        {"TORCHELASTIC_RESTART_COUNT", text(attempt)}});
  std::vector<std::string> arguments{"sape2"};
  arguments.insert(arguments.end(), command_.begin(), command_.end());
  const auto argument_list = argument_pointers(arguments);
  const auto variable_list = argument_pointers(environment);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kExitFailure);  // it was quicker
    ::execve("/proc/self/exe", argument_list.data(), variable_list.data());
    ::_exit(kExitFailure);
  }
  if (child < 0) {
    throw Error("cannot start another process: " + std::generic_category().message(errno));
  }
  return child;
}

LocalRanks::Ending LocalRanks::run(int attempt) {
  const int port = plan_.port > 0 ? plan_.port : free_port();
  std::map<pid_t, int> running;
  for (int rank = 0; rank < plan_.processes; ++rank) running[start(rank, port, attempt)] = rank;
  Ending ending;
  bool passed_on = false, failed = false, killed = false;
  Clock::time_point deadline;
  while (!running.empty()) {
    int status = 0;
    const pid_t process = ::waitpid(-1, &status, WNOHANG);
    if (process > 0 && running.contains(process)) {
      const int rank = plan_.machine * plan_.processes + running.at(process);
      running.erase(process);
      const Ended end = ended_with(status);
      if (ending.exit_code == 0 || (!end.well && !failed)) ending.exit_code = end.exit_code;
      if (end.well || failed) continue;
      failed = true;
      deadline = Clock::now() + kGrace;
      if (end.signal != 0) {
        ending.sentence = fmt::format("rank {} (process {}) was ended by signal {} ({})", rank,
                                      process, end.signal, ::strsignal(end.signal));
      }
      continue;
    }
    if (StopSignal::requested() && !passed_on) {
      passed_on = true;
      for (const auto& [id, rank] : running) ::kill(id, SIGTERM);
    }
    if (failed && !killed && Clock::now() > deadline) {
      killed = true;
      for (const auto& [id, rank] : running) ::kill(id, SIGKILL);
    }
    std::this_thread::sleep_for(kPoll);
  }
  return ending;
}

}  // namespace sape2::cli
