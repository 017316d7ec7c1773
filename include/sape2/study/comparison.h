#pragma once

#include "sape2/nn/encoding_spec.h"
#include "sape2/study/tuning.h"
#include "sape2/train/run.h"
#include "sape2/train/run_config.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sape2::dist {
class Team;
}

/// Encodings trained under one recipe, and the table of their results.
///
/// A comparison is a folder:
///
///     runs/ENCODING/seed-N/           a run folder each (see run_folder.h); has result.json when
///                                     it has ended
///     tuning/ENCODING/KEY=VALUE,…/    the same, for the trials of the tuning
///     table.md                        the table
///     results.json                    the table, every run and its epochs
///     report.html                     the same with curves, in one file
///
/// The last three are rewritten after every run. A finished run is never trained again. Several
/// processes may work in one folder: each takes a run that is neither finished nor being trained,
/// and the others take over the run of a process that was killed.
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
  std::vector<std::uint64_t> seeds = {0};  ///< a run of each encoding for each
  std::string recipe;                      ///< its name, for the report
  std::string model;                       ///< the preset's name, for the report
  /// Settings that every encoding chooses for itself before its runs.
  std::optional<TuningPlan> tuning = {};
  /// The row that the others are compared with, seed by seed.
  std::optional<nn::EncodingSpec> baseline = {};
  std::string device;  ///< where this process trains, if not where `common` says
  /// Begin runs anew that diverged, or whose checkpoints are gone or refused; what they have is
  /// moved aside.
  bool restart = false;
};

/// `count` seeds from `first` on.
std::vector<std::uint64_t> seeds_from(std::uint64_t first, std::int64_t count);

/// A finished run.
struct RunResult {
  std::uint64_t seed = 0;
  train::Figures figures = {};   ///< of the last epoch, as its task measures them
  double loss = 0;               ///< of the last epoch
  double best = 0;               ///< the main figure of the best epoch
  double seconds = 0;            ///< of training and evaluation, all sessions together
  double images_per_second = 0;  ///< of training alone
  std::int64_t peak_bytes = 0;   ///< largest memory of the process; of the GPU where used
  std::vector<train::EpochRecord> epochs = {};
  std::optional<train::TestRecord> start = {};  ///< of a trained model, before the first step

  double score() const { return train::main_figure(figures); }
};

/// A run that ended without a result.
struct FailedRun {
  std::uint64_t seed = 0;
  std::string reason;  ///< one sentence
};

struct RowResult {
  ComparisonRow row;
  std::int64_t parameters = 0;
  std::vector<RunResult> runs = {};  ///< those that are finished, in the order of the seeds
  std::vector<FailedRun> failed = {};
  std::vector<Trial> trials = {};  ///< those of the tuning that are done
  Settings chosen = {};            ///< what the tuning chose; empty without one or before its end
};

struct Comparison {
  ComparisonPlan plan;
  std::vector<RowResult> rows;
  bool finished = false;  ///< nothing is left to train
};

/// Hears how a comparison goes on; of the run in progress as any train::Observer.
class ComparisonObserver : public train::Observer {
 public:
  /// Run `number` of `total` begins or goes on, or has its result already. `what` names it: "ape,
  /// seed 0".
  virtual void run_begins(const std::string& /*what*/, std::int64_t /*number*/,
                          std::int64_t /*total*/, bool /*has_result*/) {}
  virtual void run_ended(const std::string& /*what*/, const RunResult&) {}
  virtual void run_failed(const std::string& /*what*/, const std::string& /*reason*/) {}
  /// Other processes train all that is left.
  virtual void waits(std::int64_t /*runs*/) {}
};

/// Trains what is not yet trained, seed by seed over all encodings, and writes the reports; where
/// the plan has a tuning, all of its trials come first. `training` holds the training images; the
/// test images are read when the first run needs them, which no trial does. A run that diverges is
/// a FailedRun, and the others go on. `stop` ends it with a checkpoint; calling it again with the
/// same plan goes on. Throws Error if the folder holds runs of another plan or, without `restart`,
/// runs that lost their checkpoints. Processes of a team share the runs out, whether or not their
/// folders are the same; all get all results.
Comparison run_comparison(const ComparisonPlan& plan, const data::Dataset& training,
                          const std::filesystem::path& folder, ComparisonObserver& observer,
                          const train::StopRequested& stop = {}, dist::Team* team = nullptr);

}  // namespace sape2::study
