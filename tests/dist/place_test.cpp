#include "sape2/dist/place.h"

#include "sape2/base/error.h"

#include <gtest/gtest.h>

#include <map>

namespace sape2::dist {
namespace {

using Table = std::map<std::string, std::string>;

Variables from(const Table& table) {
  return [table](const std::string& name) -> std::optional<std::string> {
    const auto found = table.find(name);
    return found == table.end() ? std::nullopt : std::optional(found->second);
  };
}

std::string refusal(const Table& table) {
  try {
    find_place(from(table));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Place, NoLauncherOrOneProcessIsAlone) {
  EXPECT_FALSE(find_place(from({})));
  EXPECT_FALSE(find_place(from({{"RANK", "0"}, {"WORLD_SIZE", "1"}})));
  // A script of sbatch: srun has not been called.
  EXPECT_FALSE(
      find_place(from({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}})));
}

TEST(Place, Torchrun) {
  const auto place = find_place(from({{"RANK", "5"},
                                      {"WORLD_SIZE", "8"},
                                      {"LOCAL_RANK", "1"},
                                      {"LOCAL_WORLD_SIZE", "4"},
                                      {"MASTER_ADDR", "node1"},
                                      {"MASTER_PORT", "29501"},
                                      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                      {"TORCHELASTIC_RESTART_COUNT", "2"}}));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 5);
  EXPECT_EQ(place->size, 8);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_size, 4);
  EXPECT_EQ(place->address, "node1");
  EXPECT_EQ(place->port, 29501);
  EXPECT_TRUE(place->store_is_there);
  EXPECT_EQ(place->restarts, 2);
}

TEST(Place, SlurmNamesTheFirstMachineAndAPortOfTheJob) {
  const Table table{{"SLURM_PROCID", "3"},
                    {"SLURM_STEP_NUM_TASKS", "8"},
                    {"SLURM_LOCALID", "3"},
                    {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                    {"SLURM_STEP_NODELIST", "gpu[07-08]"},
                    {"SLURM_JOB_ID", "1234"}};
  const auto place = find_place(from(table));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 3);
  EXPECT_EQ(place->size, 8);
  EXPECT_EQ(place->local_size, 4);
  EXPECT_EQ(place->address, "gpu07");
  EXPECT_FALSE(place->store_is_there);
  Table other = table;
  other["SLURM_JOB_ID"] = "1235";
  EXPECT_NE(find_place(from(other))->port, place->port);
  other["MASTER_PORT"] = "4000";
  EXPECT_EQ(find_place(from(other))->port, 4000);
}

TEST(Place, MpirunComesBeforeTheSlurmThatItUses) {
  const auto place = find_place(from({{"OMPI_COMM_WORLD_RANK", "1"},
                                      {"OMPI_COMM_WORLD_SIZE", "2"},
                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                      {"PMIX_NAMESPACE", "prte-1"},
                                      {"SLURM_PROCID", "0"},
                                      {"SLURM_STEP_NUM_TASKS", "1"},
                                      {"SLURM_LOCALID", "0"}}));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->launcher, "mpirun");
  EXPECT_EQ(place->rank, 1);
  EXPECT_EQ(place->address, "127.0.0.1");
  const auto hydra = find_place(from({{"PMI_RANK", "2"},
                                      {"PMI_SIZE", "4"},
                                      {"MPI_LOCALRANKID", "0"},
                                      {"MPI_LOCALNRANKS", "2"},
                                      {"MASTER_ADDR", "a"},
                                      {"MASTER_PORT", "2"}}));
  ASSERT_TRUE(hydra);
  EXPECT_EQ(hydra->rank, 2);
  EXPECT_EQ(hydra->local_size, 2);
}

TEST(Place, SaysWhatIsMissingOrWrong) {
  EXPECT_NE(refusal({{"RANK", "0"}}).find("WORLD_SIZE is not"), std::string::npos);
  EXPECT_NE(refusal({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).find("ranks begin at 0"),
            std::string::npos);
  EXPECT_NE(refusal({{"RANK", "x"}, {"WORLD_SIZE", "2"}}).find("RANK is \"x\""), std::string::npos);
  EXPECT_NE(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}).find("MASTER_PORT"),
            std::string::npos);
  EXPECT_NE(refusal({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "9"}}).find("MASTER_ADDR"),
            std::string::npos);
  EXPECT_NE(
      refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}})
          .find("1 to 65535"),
      std::string::npos);
}

TEST(Place, FirstOfSlurmsList) {
  EXPECT_EQ(first_host("one"), "one");
  EXPECT_EQ(first_host("one,two"), "one");
  EXPECT_EQ(first_host("gpu[07-09,12],login1"), "gpu07");
  EXPECT_EQ(first_host("n[3,5]"), "n3");
  EXPECT_EQ(first_host("rack1-n[12]"), "rack1-n12");
}

}  // namespace
}  // namespace sape2::dist
