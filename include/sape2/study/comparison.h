#pragma once

#include "sape2/nn/encoding_spec.h"
#include "sape2/train/run.h"
#include "sape2/train/run_config.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Encodings trained under one recipe, and the table that comes of it.
///
/// A comparison is a folder:
///
///     runs/ENCODING/seed-N/   one run folder each (see run_folder.h), with result.json at its end
///     table.md                the table
///     results.json            the table, every run and its epochs
///     report.html             the same with curves, in one file
///
/// The last three are written anew after every run. Whatever is finished is never trained again.
namespace sape2::study {

/// Accuracy in % as a paper prints it.
struct PublishedFigures {
  std::optional<double> top1;
  std::optional<double> top5;
};

struct ComparisonRow {
  nn::EncodingSpec encoding;
  std::string note = {};            ///< what sets the row apart; may be empty
  PublishedFigures published = {};  ///< where the row is one of the paper's
};

/// One row an encoding of such a list (see nn::parse_encoding_list). Doubles are refused.
std::vector<ComparisonRow> listed_rows(std::string_view encodings);

/// The rows of the paper's `table1` or `table2`, with its figures for that data set where it has
/// any.
std::vector<ComparisonRow> paper_rows(const std::string& table, const std::string& dataset);

/// The ladder from sape2-k to sape2-rel-k, one option a step, and sape2-rel-k with open gates as
/// its control.
std::vector<ComparisonRow> family_rows();

struct ComparisonPlan {
  /// What all runs share, fitted to the data; its encoding and seed are set run by run.
  train::RunConfig common;
  std::vector<ComparisonRow> rows;
  std::int64_t seeds = 1;  ///< runs an encoding: common.seed, common.seed + 1, …
  std::string recipe;      ///< its name, for the report
  std::string model;       ///< the preset's name, for the report
  /// Begin runs anew whose checkpoints are gone or refused; what they have is moved aside.
  bool restart = false;
};

/// A finished run. Shares are 0 … 1.
struct RunResult {
  std::uint64_t seed = 0;
  double top1 = 0, top5 = 0, loss = 0;  ///< of the last epoch
  double best_top1 = 0;                 ///< of the best one
  double seconds = 0;                   ///< of training and evaluation, all sessions together
  double images_per_second = 0;         ///< of training alone
  std::int64_t peak_bytes = 0;          ///< largest memory of the process; of the GPU where used
  std::vector<train::EpochRecord> epochs = {};
};

struct RowResult {
  ComparisonRow row;
  std::int64_t parameters = 0;
  std::vector<RunResult> runs = {};  ///< those that are finished
};

struct Comparison {
  ComparisonPlan plan;
  std::vector<RowResult> rows;
  bool finished = false;
};

/// Hears how a comparison goes on; of the run in progress as any train::Observer.
class ComparisonObserver : public train::Observer {
 public:
  /// Run `number` of `total` begins or goes on, or was finished before.
  virtual void run_begins(const nn::EncodingSpec&, std::uint64_t /*seed*/, std::int64_t /*number*/,
                          std::int64_t /*total*/, bool /*reused*/) {}
  virtual void run_ended(const nn::EncodingSpec&, const RunResult&) {}
};

/// Trains what is not yet trained, seed by seed over all encodings, and writes the reports. `stop`
/// ends it with a checkpoint; calling it again with the same plan goes on. Throws Error if the
/// folder holds runs of another plan or, without `restart`, runs that lost their checkpoints.
Comparison run_comparison(const ComparisonPlan& plan, const train::RunData& data,
                          const std::filesystem::path& folder, ComparisonObserver& observer,
                          const train::StopRequested& stop = {});

}  // namespace sape2::study
