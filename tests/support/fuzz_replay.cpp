// Runs a fuzz target without libFuzzer: on every file of its corpus, then on random changes of
// them. The same seed gives the same inputs.
//
//   fuzz_NAME [--mutations N] [--seed S] [--keep FILE] FILE|FOLDER…
//
// --keep writes each input before it is tried, so that after a crash FILE holds the cause.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

struct Options {
  std::size_t mutations = 0;
  std::uint32_t seed = 1;
  fs::path keep;
  std::vector<fs::path> files;
};

Options parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    const bool has_value = i + 1 < count;
    if (word == "--mutations" && has_value) {
      options.mutations = std::stoull(arguments[++i]);
    } else if (word == "--seed" && has_value) {
      options.seed = static_cast<std::uint32_t>(std::stoul(arguments[++i]));
    } else if (word == "--keep" && has_value) {
      options.keep = arguments[++i];
    } else if (fs::is_directory(word)) {
      for (const auto& entry : fs::directory_iterator(word)) options.files.push_back(entry.path());
    } else {
      options.files.emplace_back(word);
    }
  }
  std::ranges::sort(options.files);
  return options;
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

/// One to four changes: bytes, bits, pieces of the other files, cuts.
std::string mutated(std::string text, const std::vector<std::string>& all, std::mt19937& random) {
  const auto below = [&](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  for (std::size_t times = 1 + below(4); times > 0; --times) {
    const std::size_t place = below(text.size() + 1);
    const std::string& other = all[below(all.size())];
    switch (below(6)) {
      case 0:
        if (place < text.size()) text[place] = static_cast<char>(random());
        break;
      case 1:
        if (place < text.size()) text[place] = static_cast<char>(text[place] ^ (1 << below(8)));
        break;
      case 2:
        text.insert(place, other.substr(below(other.size() + 1), below(24)));
        break;
      case 3:
        text.erase(place, 1 + below(12));
        break;
      case 4:
        text.insert(below(text.size() + 1), text.substr(place, below(64)));
        break;
      default:
        if (below(4) == 0) text.resize(place);
    }
  }
  return text;
}

void try_input(const std::string& text, const fs::path& keep) {
  if (!keep.empty()) std::ofstream(keep, std::ios::binary | std::ios::trunc) << text;
  // A heap copy of exact size, so that a sanitizer sees any read beyond it.
  const std::vector<std::uint8_t> exact(text.begin(), text.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int count, char** arguments) {
  const Options options = parse(count, arguments);
  std::vector<std::string> corpus;
  for (const fs::path& file : options.files) corpus.push_back(content(file));
  if (corpus.empty()) {
    std::cerr << "fuzz_replay: give the files of a corpus\n";
    return 2;
  }
  for (const std::string& each : corpus) try_input(each, options.keep);
  std::mt19937 random(options.seed);
  for (std::size_t i = 0; i < options.mutations; ++i) {
    try_input(mutated(corpus[random() % corpus.size()], corpus, random), options.keep);
  }
  std::cout << corpus.size() << " files and " << options.mutations << " mutations tried\n";
  return 0;
}
