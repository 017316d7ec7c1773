#include "sape2/train/run_folder.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/atomic_file.h"

#include "io/text_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>

namespace sape2::train {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kCheckpointsKept = 2;
constexpr std::string_view kConfigName = "config.json";
constexpr std::uint64_t kLargestConfig = std::uint64_t{1} << 26;
constexpr std::string_view kCheckpointsName = "checkpoints";
constexpr std::string_view kRefusedEnding = ".safetensors.refused";
constexpr std::string_view kAsideName = "aside-";
// Lies in the folder of the checkpoints until there is one: a run that was cut off before its first
// checkpoint is told from one whose checkpoints are gone.
constexpr std::string_view kNoneYetName = "none-yet";

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw Error("cannot make the folder " + in_quotes(path) + ": " + error.message());
  }
}

io::FolderLock lock_folder(const fs::path& path) {
  auto lock = io::FolderLock::take(path);
  if (!lock) throw FolderInUse(path);
  return *std::move(lock);
}

// What a killed process was writing (see io::AtomicFile).
void remove_leftovers(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (name.starts_with(".") && name.ends_with(".tmp")) fs::remove(entry.path(), ignored);
  }
}

// The names in a folder, sorted.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename());
  }
  if (error) throw Error("cannot read the folder " + in_quotes(folder) + ": " + error.message());
  std::ranges::sort(names);
  return names;
}

bool has_bytes(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  // What cannot be looked into is not taken for empty.
  return error ? fs::exists(fs::symlink_status(file, error)) : size > 0;
}

void move_into(const fs::path& folder, const fs::path& file) {
  std::error_code error;
  fs::rename(file, folder / file.filename(), error);
  if (error) {
    throw Error("cannot move " + in_quotes(file) + " into " + in_quotes(folder) + ": " +
                error.message());
  }
}

}  // namespace

FolderInUse::FolderInUse(const fs::path& folder)
    : Error("another process is training in " + in_quotes(folder) + "; wait for it, or end it") {}

RunFolder::RunFolder(fs::path path, RunConfig config, std::optional<io::FolderLock> lock)
    : path_(std::move(path)), config_(std::move(config)), lock_(std::move(lock)) {}

RunFolder RunFolder::create(const fs::path& path, const RunConfig& config) {
  make_folder(path);
  auto lock = lock_folder(path);
  if (fs::exists(path / kConfigName)) {
    throw Error(in_quotes(path) + " holds a run already; go on with `--resume " + path.native() +
                "`, or choose another folder with --out");
  }
  return begin(path, config, std::move(lock));
}

RunFolder RunFolder::open(const fs::path& path) {
  read_config(path);  // a folder that is none is not locked
  return go_on(path, lock_folder(path));
}

RunFolder RunFolder::open_or_create(const fs::path& path, const RunConfig& config) {
  make_folder(path);
  auto lock = lock_folder(path);
  return fs::exists(path / kConfigName) ? go_on(path, std::move(lock))
                                        : begin(path, config, std::move(lock));
}

RunFolder RunFolder::kept_elsewhere(const RunConfig& config) {
  return {fs::path(), config, std::nullopt};
}

RunConfig RunFolder::read_config(const fs::path& path) {
  const fs::path config_file = path / kConfigName;
  std::string text;
  try {
    text = io::read_text_file(config_file, kLargestConfig);
  } catch (const Error& error) {
    throw Error(in_quotes(path) + " is not the folder of a run: " + error.what());
  }
  return run_config_from_json(text, config_file.native());
}

RunFolder RunFolder::begin(const fs::path& path, const RunConfig& config, io::FolderLock lock) {
  make_folder(path / kCheckpointsName);
  remove_leftovers(path);
  RunFolder folder(path, config, std::move(lock));
  if (!folder.checkpoints().empty() || !folder.traces().empty()) {
    throw Error(in_quotes(path) + " has no " + std::string(kConfigName) +
                " but files of a run; put it back and go on with `--resume`, or choose another "
                "folder with --out");
  }
  folder.await_first_checkpoint();
  io::write_file(path / kConfigName, to_json(config));
  return folder;
}

RunFolder RunFolder::go_on(const fs::path& path, io::FolderLock lock) {
  RunConfig config = read_config(path);
  make_folder(path / kCheckpointsName);
  remove_leftovers(path);
  remove_leftovers(path / kCheckpointsName);
  return {path, std::move(config), std::move(lock)};
}

fs::path RunFolder::checkpoint(int64_t step) const {
  return path_ / kCheckpointsName / fmt::format("step-{:09}.safetensors", step);
}

std::vector<fs::path> RunFolder::checkpoints() const {
  std::vector<fs::path> found;
  const fs::path folder = path_ / kCheckpointsName;
  for (const std::string& name : names_in(folder)) {
    if (name.starts_with("step-") && name.ends_with(".safetensors")) found.push_back(folder / name);
  }
  std::ranges::reverse(found);
  return found;
}

void RunFolder::keep_newest_checkpoints() const {
  const auto files = checkpoints();
  if (!files.empty()) {
    std::error_code ignored;
    fs::remove(path_ / kCheckpointsName / kNoneYetName, ignored);
  }
  for (std::size_t i = kCheckpointsKept; i < files.size(); ++i) {
    std::error_code ignored;
    fs::remove(files[i], ignored);
  }
}

std::vector<std::string> RunFolder::traces() const {
  std::vector<std::string> found;
  for (const fs::path& file : {log(), best(), last()}) {
    if (has_bytes(file)) found.push_back(file.filename());
  }
  for (const std::string& name : names_in(path_ / kCheckpointsName)) {
    if (name.ends_with(kRefusedEnding)) found.push_back(std::string(kCheckpointsName) + "/" + name);
  }
  return found;
}

void RunFolder::await_first_checkpoint() const {
  io::write_file(path_ / kCheckpointsName / kNoneYetName,
                 "This run has not written a checkpoint yet: it begins at step 0.\n");
}

bool RunFolder::lost_checkpoints() const {
  std::error_code error;
  const bool none_yet = fs::exists(path_ / kCheckpointsName / kNoneYetName, error);
  return checkpoints().empty() && !none_yet && !traces().empty();
}

void RunFolder::refuse_lost_checkpoints() const {
  if (!lost_checkpoints()) return;
  throw Error(fmt::format(
      "{} has no checkpoint that can be used, but {}; put its checkpoints back, or add --restart "
      "to move these files aside and begin at step 0",
      in_quotes(path_), fmt::join(traces(), ", ")));
}

fs::path RunFolder::restart() const {
  int number = 1;
  std::error_code error;
  const auto name_of = [&] { return path_ / fmt::format("{}{}", kAsideName, number); };
  while (fs::exists(fs::symlink_status(name_of(), error))) ++number;
  const fs::path aside = name_of();
  make_folder(aside);
  for (const std::string& name : names_in(path_)) {
    if (name != kConfigName && !name.starts_with(kAsideName)) move_into(aside, path_ / name);
  }
  // With its configuration, what was moved is the folder of a run again.
  io::write_file(aside / kConfigName, to_json(config_));
  make_folder(path_ / kCheckpointsName);
  await_first_checkpoint();
  return aside;
}

}  // namespace sape2::train
