#pragma once

#include "sape2/dist/group.h"
#include "sape2/dist/team.h"

#include <functional>
#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace sape2::cli {

/// The processes that a launcher started together, of which this is one; alone, it is one of one.
class Processes {
 public:
  /// Meets the others, and shares the cores of a machine out unless `app`'s --threads was given.
  Processes(const CLI::App& app, dist::Loss loss);

  int count() const { return team_ ? team_->size() : 1; }
  /// Whether this one writes files and talks to the user.
  bool leads() const { return !team_ || team_->leads(); }
  dist::Team* team() { return team_.get(); }

  /// A device by the name that a user gave: of `cuda`, each process takes its own GPU.
  std::string device_for(const std::string& name) const;
  /// No more threads than this machine has for each of its processes.
  int most_threads() const;

  /// Throws Error, naming the first value that differs, unless rank 0 has the same JSON.
  void agree(const std::string& what, const std::string& json);
  /// Rank 0's text, on every process.
  std::string from_leader(const std::string& what, const std::function<std::string()>& make);

  /// Begins sums over them, on a device; nullptr where there is only one.
  dist::Group* make_group(const std::string& device);

  /// Does the work. If it throws, the others are told why; if it ends well, they are waited for.
  int run(const std::function<int()>& work);

 private:
  std::unique_ptr<dist::Team> team_;
  std::unique_ptr<dist::Group> group_;
};

}  // namespace sape2::cli
