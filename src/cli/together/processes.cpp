#include "cli/together/processes.h"

#include "sape2/base/cpu.h"
#include "sape2/base/in_quotes.h"
#include "sape2/train/device.h"
#include "sape2/train/trainer.h"

#include "cli/info/cuda_devices.h"
#include "cli/program.h"
#include "cli/threads.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace sape2::cli {
namespace {

using Json = nlohmann::ordered_json;

// "learning_rate is 0.001, there 0.002", for the first value that differs; "" if none does.
std::string difference(const Json& here, const Json& there, const std::string& path) {
  if (here == there) return "";
  if (!here.is_object() || !there.is_object()) {
    return path + " is " + here.dump() + ", there " + there.dump();
  }
  for (const auto& [key, value] : here.items()) {
    const std::string name = path.empty() ? key : path + "." + key;
    if (!there.contains(key)) return name + " is not there";
    if (std::string found = difference(value, there[key], name); !found.empty()) return found;
  }
  return (path.empty() ? "it" : path) + " has more values there";
}

}  // namespace

Processes::Processes(const CLI::App& app, dist::Loss loss) {
  const auto place = dist::find_place();
  if (!place) return;
  team_ = dist::Team::join(*place, dist::Patience::from_environment(), loss);
  if (app.get_parent()->count("--threads") == 0) use_threads(most_threads());
}

int Processes::most_threads() const {
  const int local = team_ ? team_->place().local_size : 1;
  return std::max(1, base::usable_cores() / local);
}

std::string Processes::device_for(const std::string& name) const {
  if (name != "cuda" || !team_) return name;
  // A launcher may show each process its own GPU only.
  const auto gpus = std::max<std::size_t>(1, find_cuda_devices().size());
  return "cuda:" + std::to_string(static_cast<std::size_t>(team_->place().local_rank) % gpus);
}

void Processes::agree(const std::string& what, const std::string& json) {
  if (!team_) return;
  const std::string there = from_leader(what, [&] { return json; });
  const std::string found = difference(Json::parse(json), Json::parse(there), "");
  if (found.empty()) return;
  throw Error(team_->name_of(team_->rank()) + " was started with another " + what +
              " than rank 0: " + found + "; give all processes the same command and files");
}

std::string Processes::from_leader(const std::string& what,
                                   const std::function<std::string()>& make) {
  if (!team_) return make();
  if (!team_->leads()) return team_->await(what);
  std::string text = make();
  team_->put(what, text);
  return text;
}

dist::Group* Processes::make_group(const std::string& device) {
  if (!team_) return nullptr;
  group_ = std::make_unique<dist::Group>(*team_, train::device_named(device));
  return group_.get();
}

int Processes::run(const std::function<int()>& work) {
  if (!team_) return work();
  try {
    const int exit_code = work();
    team_->leave();
    return exit_code;
  } catch (const train::Diverged& error) {
    // All of them find that, and one tells.
    team_->give_up(error.what());
    if (leads()) throw;
    return kExitFailure;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    team_->give_up(text.substr(0, text.find('\n')));
    throw;
  }
}

}  // namespace sape2::cli
