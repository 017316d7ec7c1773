// Started with the arguments `worker`, a name and a file, this program does the work of that name
// as one of several processes; otherwise it runs the tests, which start them.
#include "dist/ranks.h"

#include "sape2/dist/team.h"

#include "support/scratch_folder.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <random>

namespace sape2::dist::test {
namespace {

std::map<std::string, Work>& all_work() {
  static std::map<std::string, Work> work;
  return work;
}

int do_work(const std::string& name, const char* file) {
  at::set_num_threads(1);
  std::unique_ptr<Team> team;
  std::unique_ptr<Group> group;
  if (const auto place = find_place()) {
    team = Team::join(*place, Patience::from_environment(), Loss::ends_all);
    group = std::make_unique<Group>(*team, at::kCPU);
  }
  const Json said = all_work().at(name)(group.get());
  if (team) team->leave();
  std::ofstream(file) << said.dump();
  return 0;
}

}  // namespace

NamedWork::NamedWork(std::string name, Work work) : name_(std::move(name)) {
  all_work().emplace(name_, work);
}

std::vector<Json> NamedWork::done_by(int processes) const {
  const sape2::testing::ScratchFolder folder;
  // Out of the range from which systems choose ports themselves.
  const int port = 20000 + static_cast<int>(std::random_device()() % 10000);
  std::vector<pid_t> started;
  const auto file = [&](int rank) { return (folder / std::to_string(rank)).native(); };
  for (int rank = 0; rank < processes; ++rank) {
    std::vector<std::string> variables;
    for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
    if (processes > 1) {
      variables.push_back("RANK=" + std::to_string(rank));
      variables.push_back("WORLD_SIZE=" + std::to_string(processes));
      variables.push_back("LOCAL_RANK=" + std::to_string(rank));
      variables.push_back("LOCAL_WORLD_SIZE=" + std::to_string(processes));
      variables.emplace_back("MASTER_ADDR=127.0.0.1");
      variables.push_back("MASTER_PORT=" + std::to_string(port));
    }
    std::vector<char*> pointers;
    for (std::string& variable : variables) pointers.push_back(variable.data());
    pointers.push_back(nullptr);
    std::string program = "dist_training_test", what = "worker", name = name_, output = file(rank);
    char* arguments[] = {program.data(), what.data(), name.data(), output.data(), nullptr};
    pid_t process = 0;
    EXPECT_EQ(
        ::posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, arguments, pointers.data()), 0);
    started.push_back(process);
  }
  std::vector<Json> said;
  for (int rank = 0; rank < processes; ++rank) {
    int status = 0;
    ::waitpid(started[static_cast<std::size_t>(rank)], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << rank << " of " << processes;
    std::ifstream stream(file(rank));
    said.push_back(Json::parse(stream, nullptr, false));
  }
  return said;
}

}  // namespace sape2::dist::test

int main(int count, char** arguments) {
  if (count == 4 && std::string(arguments[1]) == "worker") {
    return sape2::dist::test::do_work(arguments[2], arguments[3]);
  }
  ::testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
