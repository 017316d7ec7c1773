#include "predict/command_line.h"

#include "sape2/base/cpu.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"

#include "cli/limits.h"

#include <charconv>
#include <string_view>

namespace sape2::predict {
namespace {

// CLI11, which reads the command line of `sape2`, would be a third of this program.
struct NumberOption {
  std::string_view name, placeholder;
  std::int64_t CommandLine::*value;
  long most;
};
constexpr NumberOption kNumbers[] = {
    {"--top", "K", &CommandLine::top, cli::kMostClasses},
    {"--size", "N", &CommandLine::size, cli::kLargestImage},
    {"--threads", "N", &CommandLine::threads, base::kMostThreads},
};

struct Flag {
  std::string_view name;
  bool CommandLine::*value;
};
constexpr Flag kFlags[] = {
    {"--json", &CommandLine::json},
    {"--help", &CommandLine::help},
    {"-h", &CommandLine::help},
    {"--version", &CommandLine::version},
};

std::int64_t number_of(const NumberOption& option, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 ||
      value > option.most) {
    throw UsageError(std::string(option.name) + ": " + in_quotes(text) +
                     " is not a whole number from 1 to " + std::to_string(option.most));
  }
  return value;
}

[[noreturn]] void refuse(const std::string& name) {
  std::vector<std::string> valid;
  for (const Flag& flag : kFlags) valid.emplace_back(flag.name);
  for (const NumberOption& option : kNumbers) valid.emplace_back(option.name);
  throw UsageError("option " + in_quotes(name) + " is not known; " + name_advice(name, valid));
}

class Reader {
 public:
  explicit Reader(const std::vector<std::string>& words) : words_(words) {}

  CommandLine read() {
    for (; at_ < words_.size(); ++at_) {
      const std::string& word = words_[at_];
      if (!only_names_ && word == "--") {
        only_names_ = true;
      } else if (!only_names_ && word.size() > 1 && word.front() == '-') {
        option(word);
      } else {
        name(word);
      }
    }
    if (line_.help || line_.version) return line_;
    if (line_.model.empty()) throw UsageError("model is required");
    if (line_.images.empty()) throw UsageError("images is required");
    return line_;
  }

 private:
  void name(const std::string& word) {
    if (line_.model.empty()) {
      line_.model = word;
    } else {
      line_.images.push_back(word);
    }
  }

  void option(const std::string& word) {
    const std::size_t equals = word.find('=');
    const std::string given = word.substr(0, equals);
    for (const Flag& flag : kFlags) {
      if (word == flag.name) {
        line_.*flag.value = true;
        return;
      }
    }
    for (const NumberOption& option : kNumbers) {
      if (given != option.name) continue;
      if (equals == std::string::npos && at_ + 1 == words_.size()) {
        throw UsageError(given + ": 1 required " + std::string(option.placeholder) + " missing");
      }
      const std::string text =
          equals == std::string::npos ? words_[++at_] : word.substr(equals + 1);
      line_.*option.value = number_of(option, text);
      return;
    }
    refuse(given);
  }

  const std::vector<std::string>& words_;
  std::size_t at_ = 0;
  bool only_names_ = false;
  CommandLine line_;
};

}  // namespace

const char* const kHelp =
    "Say what a model sees in images\n"
    "Usage: sape2-predict [OPTIONS] MODEL IMAGE…\n"
    "\n"
    "  MODEL        A model file, or the folder of a run\n"
    "  IMAGE…       PNG or JPEG files\n"
    "\n"
    "  -h,--help    Print this help and leave\n"
    "  --version    Print the version and leave\n"
    "  --top K      Classes to name (default: 5)\n"
    "  --size N     Scale images to N×N (default: the size trained at)\n"
    "  --json       Print JSON instead of text\n"
    "  --threads N  Threads to compute with (default: one for each core)\n"
    "\n"
    "Each image is scaled to cover the size the model was trained at, and its middle is used.\n"
    "The same as `sape2 predict`, but without LibTorch: this file and a model are all it needs.\n"
    "\n"
    "  sape2-predict model.safetensors cat.jpg dog.png --top 3\n";

CommandLine parse_command_line(const std::vector<std::string>& words) {
  return Reader(words).read();
}

}  // namespace sape2::predict
