// What a model sees in images, by the runtime without LibTorch; see docs/infer.md.

#include "sape2/base/in_quotes.h"
#include "sape2/data/image.h"
#include "sape2/infer/prediction.h"
#include "sape2/version.h"

#include "cli/model_path.h"
#include "cli/program.h"
#include "cli/standard_streams.h"
#include "cli/terminal.h"
#include "predict/command_line.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <new>
#include <system_error>

namespace sape2::predict {
namespace {

using Json = nlohmann::ordered_json;

int report(std::string_view message, int exit_code) {
  std::fflush(stdout);
  std::fprintf(stderr, "sape2-predict: %s\n", printable(message).c_str());
  return exit_code;
}

Json json_of(const std::string& image, const std::vector<infer::Prediction>& predictions) {
  Json classes = Json::array();
  for (const infer::Prediction& prediction : predictions) {
    classes.push_back({{"class", prediction.name},
                       {"index", prediction.index},
                       {"probability", prediction.probability}});
  }
  return {{"image", image}, {"predictions", std::move(classes)}};
}

void print(const cli::Terminal& terminal, const std::string& image,
           const std::vector<infer::Prediction>& predictions) {
  terminal.heading(image);
  std::vector<std::vector<std::string>> rows;
  for (const infer::Prediction& prediction : predictions) {
    char share[32];
    std::snprintf(share, sizeof share, "%6.2f %%", 100 * prediction.probability);
    rows.push_back({share, prediction.name});
  }
  terminal.table(rows);
}

std::vector<infer::Prediction> look(infer::Session& session, const std::string& image,
                                    const CommandLine& line) {
  const data::Image picture = data::read_image(image);
  try {
    return infer::predict(session, picture, line.top, line.size);
  } catch (const Error& error) {
    throw Error(in_quotes(image) + ": " + error.what());
  }
}

int run(const std::vector<std::string>& words) {
  const CommandLine line = parse_command_line(words);
  if (line.help || line.version) {
    std::fputs(line.help ? kHelp : "sape2-predict " SAPE2_VERSION "\n", stdout);
    return cli::kExitSuccess;
  }
  infer::Session session(infer::Model::open(cli::model_file_of(line.model)),
                         {.threads = static_cast<int>(line.threads)});
  nn::require_classifier(session.model().config(), "sape2-predict");
  const cli::Terminal terminal = cli::Terminal::standard_output();
  Json results = Json::array();
  int exit_code = cli::kExitSuccess;
  for (const std::string& image : line.images) {
    try {
      const auto predictions = look(session, image, line);
      if (line.json) {
        results.push_back(json_of(image, predictions));
      } else {
        print(terminal, image, predictions);
      }
    } catch (const Error& error) {
      // One bad file does not keep the others from being looked at.
      exit_code = report(error.what(), cli::kExitFailure);
    }
  }
  if (line.json) terminal.print(results.dump(2, ' ', false, Json::error_handler_t::replace));
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw Error("cannot write to standard output: " + std::generic_category().message(errno));
  }
  return exit_code;
}

}  // namespace
}  // namespace sape2::predict

int main(int count, char** arguments) {
  using namespace sape2;
  cli::open_standard_streams();
  try {
    return predict::run({arguments + (count > 0 ? 1 : 0), arguments + count});
  } catch (const predict::UsageError& error) {
    return predict::report(error.what(), cli::kExitUsage);
  } catch (const std::filesystem::filesystem_error& error) {
    return predict::report("cannot use " + in_quotes(error.path1()) + ": " + error.code().message(),
                           cli::kExitFailure);
  } catch (const std::bad_alloc&) {
    return predict::report("there is not enough memory", cli::kExitFailure);
  } catch (const std::exception& error) {
    return predict::report(error.what(), cli::kExitFailure);
  }
}
