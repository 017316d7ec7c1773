#include "study/team_queue.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/dist/team.h"
#include "sape2/io/atomic_file.h"

#include <nlohmann/json.hpp>

#include <charconv>
#include <fstream>
#include <sstream>

namespace sape2::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kFiles[] = {"result.json", "log.jsonl"};

std::string claim_of(const QueuedRun& run) {
  return "claim/" + train::fingerprint(run.config) + "/" + run.what;
}

std::string result_of(const QueuedRun& run) {
  return "result/" + train::fingerprint(run.config) + "/" + run.what;
}

std::string read_text(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return std::move(text).str();
}

}  // namespace

bool TeamQueue::claim(const QueuedRun& run) {
  const std::string self = std::to_string(team_.rank()), name = claim_of(run);
  if (team_.replace(name, "", self)) return true;
  const std::string holder = team_.find(name).value_or("");
  int rank = 0;
  std::from_chars(holder.data(), holder.data() + holder.size(), rank);
  return !team_.alive(rank) && team_.replace(name, holder, self);
}

void TeamQueue::publish(const QueuedRun& run) {
  if (team_.find(result_of(run))) return;
  Json files;
  for (const char* name : kFiles) files[name] = read_text(run.folder / name);
  team_.put(result_of(run), files.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void TeamQueue::fetch(const QueuedRun& run) {
  const auto text = team_.find(result_of(run));
  if (!text) return;
  const Json files = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!files.is_object()) return;
  std::error_code error;
  fs::create_directories(run.folder, error);
  if (error) {
    throw Error("cannot make the folder " + in_quotes(run.folder) + ": " + error.message());
  }
  // The result last: with it, the run counts as ended.
  for (const char* name : {kFiles[1], kFiles[0]}) {
    if (files.contains(name)) io::write_file(run.folder / name, files[name].get<std::string>());
  }
}

}  // namespace sape2::study
