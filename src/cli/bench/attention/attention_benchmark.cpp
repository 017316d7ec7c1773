#include "sape2/base/error.h"
#include "sape2/io/atomic_file.h"
#include "sape2/kernels/dispatch.h"
#include "sape2/train/device.h"

#include "cli/bench/attention/attention_report.h"
#include "cli/bench/attention/explain_kernels.h"
#include "cli/bench/attention/gpu_attention_report.h"
#include "cli/bench/benchmarks.h"
#include "cli/bench/progress_line.h"
#include "cli/info/compute_rate.h"
#include "cli/program.h"
#include "cli/threads.h"
#include "cli/whole_number.h"

#include <ATen/Context.h>
#include <CLI/CLI.hpp>

#include <algorithm>

namespace sape2::cli {
namespace {

constexpr std::int64_t kMostHeadSize = 256;
constexpr int kProductSide = 1536;
constexpr double kProductMilliseconds = 600;
constexpr double kMostSeconds = 86400;
// What it takes to load the program once more, for a path that is measured in a process of its own.
constexpr double kStartMilliseconds = 500;

class AttentionBenchmark : public Command {
 public:
  std::string name() const override { return "attention"; }
  std::string summary() const override {
    return "Time of the fused attention beside the plain formulas, in one run";
  }

  void declare(CLI::App& app) override {
    app.add_option(
           "--encodings", encodings_,
           "Encodings, e.g. 'sape2-k,sape2-rel-k[gates=open]' (default: sape2-k,sape2-rel-k)")
        ->type_name("LIST");
    app.add_option(
           "--shapes", shapes_,
           "ROWSxCOLS:IMAGESxHEADS,… (default: 8x8:32x6,14x14:8x6,32x32:1x6,64x64:1x6; on a "
           "GPU 8x8:128x6,14x14:64x6,32x32:8x6,64x64:1x6)")
        ->type_name("LIST")
        ->delimiter(',');
    app.add_option("--head-size", head_size_, "Numbers a head (default: 64)")
        ->check(whole_number(1, kMostHeadSize))
        ->type_name("N");
    app.add_option("--dtypes", dtypes_,
                   "float32, bfloat16 and, on a GPU, float16 (default: float32; on a GPU bfloat16)")
        ->check(CLI::IsMember({"float32", "bfloat16", "float16"}))
        ->type_name("LIST")
        ->delimiter(',');
    app.add_option("--passes", passes_,
                   "forward, forward+backward or both (default: forward+backward)")
        ->check(CLI::IsMember({"forward", "forward+backward"}))
        ->type_name("LIST")
        ->delimiter(',');
    app.add_option("--device", device_, "cpu, cuda or cuda:N (default: cpu)")->type_name("DEVICE");
    app.add_option("--repetitions", patience_.rounds, "Least number of timed rounds (default: 5)")
        ->check(whole_number(1, 100000))
        ->type_name("N");
    app.add_option(
           "--seconds", seconds_,
           "On a CPU: about how long to measure, all cases together, but never fewer rounds "
           "than --repetitions (default: 3 to 4 for each case)")
        ->check(CLI::Range(0.001, kMostSeconds))
        ->type_name("S");
    app.add_flag("--no-reference", no_reference_, "Leave out the slow reference");
    explain_option_ =
        app.add_option("--explain", explain_,
                       "Instead of measuring: which CUDA kernels the cases take on a GPU, and why "
                       "not faster ones; sm_80, sm_90, … or cuda, the GPU at hand (default: sm_90)")
            ->expected(0, 1)
            ->check(CLI::IsMember(gpu_names()))
            ->type_name("GPU");
    app.add_option("--json", json_, "Write the rows to this file too")->type_name("FILE");
    // How the benchmark measures one path in a process of its own.
    app.add_option("--measure", measure_)->check(CLI::IsMember({"plain", "reference"}))->group("");
  }

  int run(Terminal& terminal) override {
    if (explain_option_->count() > 0) return explain(terminal);
    const auto cases = wanted_cases();
    if (!measure_.empty()) {
      if (seconds_ > 0) patience_.milliseconds = 1000 * seconds_;
      const auto path = measure_ == "plain" ? AttentionPath::plain : AttentionPath::reference;
      terminal.print(to_json(measure_path(cases.at(0), path, patience_)));
      return kExitSuccess;
    }
    const std::string report =
        is_cpu() ? measure_on_cpu(terminal, cases) : measure_on_gpu(terminal, cases);
    if (!json_.empty()) io::write_file(json_, report);
    return kExitSuccess;
  }

 private:
  static std::vector<std::string> gpu_names() {
    auto names = kernels::cuda::device_names();
    names.push_back("cuda");
    return names;
  }

  // Cases as on a GPU, of both passes one after the other.
  int explain(Terminal& terminal) {
    if (is_cpu()) device_ = "cuda";
    for (const AttentionCase& wanted : wanted_cases())
      terminal.print(explain_kernels(wanted, explain_.empty() ? "sm_90" : explain_));
    return kExitSuccess;
  }

  // The time that is left of what was asked for, shared out over the cases that are left: each is
  // measured once in this process and once in each process of its own.
  double milliseconds_a_path(double spent, std::size_t cases_left) const {
    const int children = no_reference_ ? 1 : 2;
    const double a_case = (1000 * seconds_ - spent) / static_cast<double>(cases_left);
    return std::max(1.0, (a_case - children * kStartMilliseconds) / (1 + children));
  }

  bool is_cpu() const { return device_ == "cpu"; }

  std::string measure_on_cpu(const Terminal& terminal, const std::vector<AttentionCase>& cases) {
    std::vector<AttentionRow> rows;
    {
      ProgressLine progress("bench attention", cases.size());
      double spent = 0;
      for (const AttentionCase& wanted : cases) {
        progress.begin(wanted.encoding.to_string() + " " + wanted.shape.to_string());
        if (seconds_ > 0) {
          patience_.milliseconds = milliseconds_a_path(spent, cases.size() - rows.size());
        }
        spent += milliseconds_of([&] {
          rows.push_back(measure_row(wanted, threads_in_use(), patience_, !no_reference_));
        });
      }
    }
    const BlasLibrary blas = find_blas_library();
    print_report(terminal, rows, blas, matrix_product_gflops(kProductSide, kProductMilliseconds),
                 !no_reference_);
    return report_json(rows, blas);
  }

  std::string measure_on_gpu(const Terminal& terminal, const std::vector<AttentionCase>& cases) {
    train::device_named(device_);
    // Training wants that; here it would only slow LibTorch's own attention down.
    at::globalContext().setDeterministicAlgorithms(false, false);
    std::vector<GpuAttentionRow> rows;
    {
      ProgressLine progress("bench attention", cases.size());
      GpuCeilings ceilings;
      for (const AttentionCase& wanted : cases) {
        progress.begin(wanted.encoding.to_string() + " " + wanted.shape.to_string());
        if (ceilings.dtype != wanted.dtype)
          ceilings = measure_ceilings(device_, wanted.dtype, patience_.rounds);
        rows.push_back(measure_gpu_row(wanted, ceilings, patience_.rounds, !no_reference_));
      }
    }
    print_report(terminal, device_, rows);
    return report_json(device_, rows);
  }

  std::vector<AttentionCase> wanted_cases() const {
    std::vector<AttentionCase> cases;
    const auto dtypes =
        dtypes_.empty() ? std::vector<std::string>{is_cpu() ? "float32" : "bfloat16"} : dtypes_;
    const auto shapes = shapes_.empty() ? usual_shapes() : shapes_;
    if (is_cpu() && std::ranges::find(dtypes, "float16") != dtypes.end())
      throw Error(
          "--dtypes float16 is not supported on the CPU; use bfloat16 or float32, or --device "
          "cuda");
    const auto encodings = nn::parse_encoding_list(encodings_);
    for (const std::string& dtype : dtypes)
      for (const std::string& pass : passes_)
        for (const std::string& shape : shapes)
          for (const auto& encoding : encodings)
            cases.push_back({.shape = AttentionShape::parse(shape),
                             .head_size = head_size_,
                             .dtype = dtype,
                             .backward = pass == "forward+backward",
                             .encoding = encoding,
                             .device = device_});
    return cases;
  }
  std::vector<std::string> usual_shapes() const {
    if (is_cpu()) return {"8x8:32x6", "14x14:8x6", "32x32:1x6", "64x64:1x6"};
    return {"8x8:128x6", "14x14:64x6", "32x32:8x6", "64x64:1x6"};
  }

  std::string encodings_ = "sape2-k,sape2-rel-k";
  std::vector<std::string> shapes_, dtypes_;  // empty: the device's usual ones
  std::int64_t head_size_ = 64;
  std::vector<std::string> passes_ = {"forward+backward"};
  std::string device_ = "cpu";
  Patience patience_;
  double seconds_ = 0;  // 0: as patient as usual
  bool no_reference_ = false;
  std::string json_;
  CLI::Option* explain_option_ = nullptr;
  std::string explain_;
  std::string measure_;
};

}  // namespace

std::unique_ptr<Command> make_attention_benchmark() {
  return std::make_unique<AttentionBenchmark>();
}

}  // namespace sape2::cli
