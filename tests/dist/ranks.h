#pragma once

#include "sape2/dist/group.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

/// Tests that compare one process with several: the program starts itself as each of them.
namespace sape2::dist::test {

using Json = nlohmann::json;

/// What a process does, and has to say of it; `group` is nullptr where it is alone.
using Work = Json (*)(Group* group);

/// Work that processes are started for. To be made before main().
class NamedWork {
 public:
  NamedWork(std::string name, Work work);

  /// What each of so many processes says, by rank.
  std::vector<Json> done_by(int processes) const;

 private:
  std::string name_;
};

}  // namespace sape2::dist::test
