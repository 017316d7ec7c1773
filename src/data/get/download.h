#pragma once

#include "sape2/data/get.h"

#include "data/official.h"

#include <filesystem>

namespace sape2::data {

/// Fetches a file over HTTPS into `target`, by way of `target`.part, which a later call goes on
/// with after a cut. Size and checksum are verified before the file gets its name.
void download(const RemoteFile& file, const std::filesystem::path& target, GetObserver& observer);

}  // namespace sape2::data
