#include "sape2/train/run_folder.h"

#include "sape2/error.h"
#include "sape2/in_quotes.h"
#include "sape2/io/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <system_error>

namespace sape2::train {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kCheckpointsKept = 2;
constexpr std::string_view kConfigName = "config.json";
constexpr std::string_view kCheckpointsName = "checkpoints";

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw Error("cannot make the folder " + in_quotes(path) + ": " + error.message());
  }
}

std::shared_ptr<const int> lock_folder(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    throw Error("cannot open the folder " + in_quotes(path) + ": " +
                std::generic_category().message(errno));
  }
  std::shared_ptr<const int> lock(new int(descriptor), [](const int* held) {
    ::close(*held);
    delete held;
  });
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw Error("another process is training in " + in_quotes(path) + "; wait for it, or end it");
  }
  return lock;
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

}  // namespace

RunFolder::RunFolder(fs::path path, RunConfig config, std::shared_ptr<const int> lock)
    : path_(std::move(path)), config_(std::move(config)), lock_(std::move(lock)) {}

RunFolder RunFolder::create(const fs::path& path, const RunConfig& config) {
  make_folder(path);
  auto lock = lock_folder(path);
  if (fs::exists(path / kConfigName)) {
    throw Error(in_quotes(path) + " holds a run already; go on with `--resume " + path.native() +
                "`, or choose another folder with --out");
  }
  make_folder(path / kCheckpointsName);
  remove_leftovers(path);
  io::AtomicFile file(path / kConfigName);
  file.write(to_json(config));
  file.commit();
  return {path, config, std::move(lock)};
}

RunFolder RunFolder::open(const fs::path& path) {
  const fs::path config_file = path / kConfigName;
  std::ifstream stream(config_file, std::ios::binary);
  if (!stream) {
    throw Error(in_quotes(path) + " is not the folder of a run: it has no readable " +
                std::string(kConfigName));
  }
  std::ostringstream text;
  text << stream.rdbuf();
  auto lock = lock_folder(path);
  RunConfig config = run_config_from_json(text.str(), config_file.native());
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
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_ / kCheckpointsName, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(".safetensors")) found.push_back(entry.path());
  }
  std::ranges::sort(found, std::ranges::greater{});
  return found;
}

void RunFolder::remove_old_checkpoints() const {
  const auto files = checkpoints();
  for (std::size_t i = kCheckpointsKept; i < files.size(); ++i) {
    std::error_code ignored;
    fs::remove(files[i], ignored);
  }
}

}  // namespace sape2::train
