#pragma once

#include "sape2/data/get.h"

#include "data/official.h"

#include <filesystem>

namespace sape2::data {

/// Refuses a folder whose files are not what was published: by a tree's own check, by checksums
/// where there are any, otherwise by the number of records and of labels of each class, whatever
/// their order.
void verify(const OfficialFiles& official, const std::filesystem::path& folder);

/// get_dataset() for any description of files; tests bring their own.
GetResult get_official(const OfficialFiles& official, const GetOptions& options,
                       GetObserver& observer);

}  // namespace sape2::data
