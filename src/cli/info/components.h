#pragma once

#include <string>
#include <vector>

namespace sape2::cli {

/// A part of the program that needs libraries which a build may lack.
struct Component {
  std::string name;
  std::string purpose;
  bool present = false;
  std::string packages;  ///< the Debian packages that bring it

  /// What to do where it is missing: one clause.
  std::string advice() const;
};

const std::vector<Component>& components();

}  // namespace sape2::cli
