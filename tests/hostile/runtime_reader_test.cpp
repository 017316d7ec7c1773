// The runtime reads model files that nobody should trust, as the reader on LibTorch does: both take
// a file or refuse it in the same words, and neither crashes.
#include "sape2/base/error.h"
#include "sape2/infer/session.h"
#include "sape2/io/model_file.h"
#include "sape2/nn/vit.h"

#include "support/scratch_folder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

namespace sape2::infer::test {
namespace {

using namespace sape2::testing;

constexpr std::size_t kLengthBytes = 8;

std::string tiny_model(const std::string& encoding, nn::Pooling pooling, std::int64_t registers) {
  nn::ModelConfig config;
  config.vit = {.image_size = {8, 8},
                .patch_size = {4, 4},
                .classes = 2,
                .depth = 1,
                .width = 8,
                .heads = 2,
                .mlp_ratio = 1,
                .pooling = pooling,
                .registers = registers};
  config.encoding = nn::EncodingSpec::parse(encoding);
  config.class_names = {"cat", "dog"};
  config.mean = {0.5, 0.5, 0.5};
  config.deviation = {0.2, 0.2, 0.2};
  const ScratchFolder folder;
  io::save_model(folder.path() / "model.safetensors", nn::ViT(config));
  std::ifstream file(folder.path() / "model.safetensors", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::uint64_t header_length(const std::string& file) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  return length;
}

// Under another name the checksum is not looked for: what is behind it gets its turn.
std::string without_checksum(std::string file) {
  const std::size_t at = file.find("sape2_checksum");
  EXPECT_NE(at, std::string::npos);
  file[at] = 'x';
  return file;
}

class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}

  std::string mutated(std::string file) {
    const std::size_t times = 1 + below(3);
    for (std::size_t i = 0; i < times; ++i) mutate_once(file);
    return file;
  }

  std::size_t below(std::size_t limit) { return random_() % limit; }

 private:
  // Most changes hit the header, where sizes, types and the configuration are.
  void mutate_once(std::string& file) {
    if (file.size() <= kLengthBytes) return;
    const std::size_t header =
        std::min<std::size_t>(header_length(file), file.size() - kLengthBytes);
    const std::size_t span = below(4) == 0 || header == 0 ? file.size() - kLengthBytes : header;
    const std::size_t place = kLengthBytes + below(span);
    switch (below(5)) {
      case 0:
        file[place] = static_cast<char>(random_());
        break;
      case 1:
        file[place] = static_cast<char>('0' + below(10));
        break;
      case 2:
        file[place] ^= static_cast<char>(1U << below(8));
        break;
      case 3:
        change_number(file, place);
        break;
      default:
        if (below(8) == 0) file.resize(place);
    }
  }

  // A number of the header gets other digits, as many as before.
  void change_number(std::string& file, std::size_t place) {
    const std::size_t at = file.find_first_of("0123456789", place);
    for (std::size_t i = at; i < file.size() && std::isdigit(static_cast<unsigned char>(file[i]));
         ++i) {
      file[i] = static_cast<char>('0' + below(10));
    }
  }

  std::mt19937 random_;
};

struct Verdict {
  bool taken = false;
  std::string sentence;
};

template <class Reader>
Verdict verdict_of(const Reader& read) {
  try {
    read();
    return {true, ""};
  } catch (const Error& error) {
    return {false, error.what()};
  }
}

// Runs what was taken, as long as its images are not large.
void run_once(const Model& model) {
  const nn::ViTConfig& vit = model.config().vit;
  constexpr std::int64_t kMostPixels = 64 * 64;
  if (vit.image_size.height > kMostPixels || vit.image_size.width > kMostPixels ||
      vit.image_size.height * vit.image_size.width > kMostPixels) {
    return;
  }
  Session session(model, {.threads = 1});
  const std::vector<float> pixels(vit.channels * vit.image_size.height * vit.image_size.width,
                                  0.5F);
  session.run({pixels.data(), 1, vit.image_size.height, vit.image_size.width});
}

// Of several tensors that are missing or wrong, the two may name different ones.
bool is_about_a_tensor(const std::string& sentence) {
  return sentence.find("tensor \"") != std::string::npos;
}

bool agree(const std::string& file) {
  // Copies of exact size: a sanitizer sees any read beyond them.
  const std::vector<char> exact(file.begin(), file.end());
  const auto bytes = std::as_bytes(std::span(exact));
  const Verdict runtime =
      verdict_of([&] { run_once(Model::from_memory(bytes, "model.safetensors")); });
  const Verdict plain =
      verdict_of([&] { io::check_model(io::SafetensorsFile::view(bytes, "model.safetensors")); });
  EXPECT_EQ(runtime.taken, plain.taken) << runtime.sentence << plain.sentence;
  if (!is_about_a_tensor(runtime.sentence) || !is_about_a_tensor(plain.sentence)) {
    EXPECT_EQ(runtime.sentence, plain.sentence);
  }
  EXPECT_EQ(runtime.sentence.find('\n'), std::string::npos) << runtime.sentence;
  return runtime.taken;
}

std::vector<std::string> seeds() {
  std::vector<std::string> files;
  using nn::Pooling;
  for (const char* encoding : {"sape2-k+ape", "sape2-rel-qk", "cope", "rope2d-mixed", "lape"}) {
    files.push_back(tiny_model(encoding, Pooling::mean, 0));
  }
  files.push_back(tiny_model("rpe-decomposed", Pooling::class_token, 2));
  files.push_back(tiny_model("sinusoidal2d", Pooling::sequence, 0));
  return files;
}

TEST(RuntimeReader, GivesTheVerdictsOfThePlainReader) {
  Mutator mutator(20261118);
  int taken = 0, tried = 0;
  for (const std::string& whole : seeds()) {
    EXPECT_TRUE(agree(whole));
    const std::string open = without_checksum(whole);
    EXPECT_TRUE(agree(open));
    constexpr int kRounds = 400;
    for (int round = 0; round < kRounds && !::testing::Test::HasFailure(); ++round) {
      taken += agree(mutator.mutated(round % 8 == 0 ? whole : open)) ? 1 : 0;
      ++tried;
    }
  }
  // Both verdicts have to be reached often, or the mutations test nothing.
  EXPECT_GT(taken, tried / 50);
  EXPECT_LT(taken, tried * 9 / 10);
}

TEST(RuntimeReader, RefusesEveryTruncation) {
  const std::string whole = tiny_model("sape2-rel-k", nn::Pooling::mean, 0);
  for (std::size_t length = 0; length < whole.size(); length += 1 + length / 64) {
    EXPECT_FALSE(agree(whole.substr(0, length))) << length;
  }
}

// A mapping of a file that somebody shortens would end the process.
TEST(RuntimeReader, AFileMayBecomeShorterMeanwhile) {
  const ScratchFolder folder;
  const std::filesystem::path path = folder / "model.safetensors";
  const std::string whole = tiny_model("ape", nn::Pooling::mean, 0);
  const auto write = [&] { std::ofstream(path, std::ios::binary | std::ios::trunc) << whole; };
  write();
  std::atomic<bool> over = false;
  std::thread other([&] {
    while (!over) {
      std::filesystem::resize_file(path, 100);
      write();
    }
  });
  int taken = 0, refused = 0;
  for (int round = 0; round < 2000; ++round) {
    ++(verdict_of([&] { run_once(Model::open(path)); }).taken ? taken : refused);
  }
  over = true;
  other.join();
  EXPECT_GT(refused, 0);
  write();
  EXPECT_NO_THROW(Model::open(path));
}

TEST(RuntimeReader, RefusesWeightsThatAreNoNumbers) {
  const std::string open = without_checksum(tiny_model("ape", nn::Pooling::mean, 0));
  const std::uint32_t not_a_number = 0x7FC00000;
  const std::size_t weights = kLengthBytes + header_length(open);
  for (std::size_t at = weights; at + 4 <= open.size(); at += 404) {
    std::string file = open;
    std::memcpy(file.data() + at, &not_a_number, sizeof not_a_number);
    EXPECT_FALSE(agree(file)) << at;
  }
}

}  // namespace
}  // namespace sape2::infer::test
