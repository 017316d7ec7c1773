// Trains models of every encoding with 1, 2 and 4 processes. Started with the argument `worker`,
// this program is one of them; otherwise it starts them and compares.
#include "sape2/data/dataset.h"
#include "sape2/dist/group.h"
#include "sape2/dist/team.h"
#include "sape2/io/crc32c.h"
#include "sape2/nn/vit.h"
#include "sape2/train/evaluate.h"
#include "sape2/train/loader_source.h"
#include "sape2/train/training_step.h"

#include "io/scratch_folder.h"
#include "nn/support.h"
#include "train/support.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <random>

namespace sape2::train::test {
namespace {

using Json = nlohmann::json;

constexpr int64_t kSteps = 20, kImages = 48, kTestImages = 10;

// All that the loader can do to a batch, and all that a step can do to gradients.
RunConfig run_of(const std::string& encoding) {
  RunConfig config = tiny_run();
  config.model.encoding = nn::EncodingSpec::parse(encoding);
  config.model.vit.mlp_dropout = 0;  // drawn by each process for itself
  Recipe& recipe = config.recipe;
  recipe.batch_size = 13;  // no number of processes divides it
  recipe.passes = 2;
  recipe.learning_rate = 1e-3;
  recipe.crop_padding = 1;
  recipe.flip = true;
  recipe.rand_augment_operations = 1;
  recipe.erase_probability = 0.3;
  recipe.mixup_alpha = 0.8;
  recipe.cutmix_alpha = 1;
  recipe.label_smoothing = 0.1;
  return config;
}

uint32_t checksum(const at::Tensor& tensor) {
  return io::crc32c({static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()});
}

Json trained(const RunConfig& config, dist::Group* group) {
  const data::BatchPart part =
      group == nullptr ? data::BatchPart{} : data::BatchPart{group->rank(), group->size()};
  LoaderSource source(corners(kImages, 1), config, part);
  nn::ViT model(config.model, {.seed = config.seed});
  TrainingStep training(model, config.recipe, config.seed, group);
  Json losses, norms;
  for (int64_t step = 0; step < kSteps; ++step) {
    const int64_t steps = source.steps_per_epoch();
    const auto outcome =
        training.run(source.batch(step / steps, step % steps), config.recipe.learning_rate, step);
    losses.push_back(outcome.loss());
    norms.push_back(outcome.gradient_norm());
  }
  nn::ViT averaged(config.model);
  copy_weights(training.weights_to_keep(), averaged);
  const Evaluation test = evaluate(averaged, corners(kTestImages, 2), {.group = group});
  return {{"losses", losses},
          {"norms", norms},
          {"checksum", checksum(training.flat_state().front())},
          {"images", test.images},
          {"test_loss", test.loss},
          {"confusion", test.confusion.sum().item<int64_t>()}};
}

int work(const char* file) {
  at::set_num_threads(1);
  std::unique_ptr<dist::Team> team;
  std::unique_ptr<dist::Group> group;
  if (const auto place = dist::find_place()) {
    team = dist::Team::join(*place, dist::Patience::from_environment(), dist::Loss::ends_all);
    group = std::make_unique<dist::Group>(*team, at::kCPU);
  }
  Json all;
  std::vector<std::string> encodings = nn::testing::all_encodings();
  encodings.emplace_back("sape2-k+ape");
  for (const std::string& encoding : encodings) {
    all[encoding] = trained(run_of(encoding), group.get());
  }
  if (team) team->leave();
  std::ofstream(file) << all.dump();
  return 0;
}

// What each of so many processes says.
std::vector<Json> trained_by(int processes, const std::filesystem::path& folder) {
  // Out of the range from which systems choose ports themselves.
  const int port = 20000 + static_cast<int>(std::random_device()() % 10000);
  std::vector<pid_t> started;
  const auto file = [&](int rank) {
    return (folder / (std::to_string(processes) + "-" + std::to_string(rank))).native();
  };
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
    std::string name = "dist_training_test", what = "worker", output = file(rank);
    char* arguments[] = {name.data(), what.data(), output.data(), nullptr};
    pid_t process = 0;
    EXPECT_EQ(
        ::posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, arguments, pointers.data()), 0);
    started.push_back(process);
  }
  std::vector<Json> results;
  for (int rank = 0; rank < processes; ++rank) {
    int status = 0;
    ::waitpid(started[static_cast<std::size_t>(rank)], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << rank << " of " << processes;
    std::ifstream stream(file(rank));
    results.push_back(Json::parse(stream, nullptr, false));
  }
  return results;
}

TEST(DistributedTraining, FollowsOneProcessForEveryEncoding) {
  const io::test::ScratchFolder folder;
  const Json alone = trained_by(1, folder.path()).front();
  ASSERT_TRUE(alone.is_object());
  ASSERT_GT(alone.size(), 10u);
  for (const int processes : {2, 4}) {
    const auto together = trained_by(processes, folder.path());
    for (const auto& [encoding, one] : alone.items()) {
      SCOPED_TRACE(encoding + " with " + std::to_string(processes) + " processes");
      const Json& lead = together.front().at(encoding);
      double farthest = 0, farthest_norm = 0;
      for (std::size_t step = 0; step < kSteps; ++step) {
        const auto off = [&](const char* key) {
          return std::abs(lead.at(key).at(step).get<double>() - one.at(key).at(step).get<double>());
        };
        farthest = std::max(farthest, off("losses"));
        farthest_norm = std::max(farthest_norm, off("norms"));
      }
      EXPECT_LT(farthest, 1e-5);
      EXPECT_LT(farthest_norm, 1e-3);
      EXPECT_NE(one.at("losses").front(), one.at("losses").back());
      EXPECT_EQ(lead.at("images"), one.at("images"));
      EXPECT_EQ(lead.at("confusion"), kTestImages);
      EXPECT_NEAR(lead.at("test_loss").get<double>(), one.at("test_loss").get<double>(), 1e-5);
      for (const Json& rank : together) EXPECT_EQ(rank.at(encoding), lead);
    }
  }
}

}  // namespace
}  // namespace sape2::train::test

int main(int count, char** arguments) {
  if (count == 3 && std::string(arguments[1]) == "worker") {
    return sape2::train::test::work(arguments[2]);
  }
  ::testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
