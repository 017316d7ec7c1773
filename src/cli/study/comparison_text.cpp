#include "cli/study/comparison_text.h"

#include "sape2/study/comparison_report.h"

namespace sape2::cli {
namespace {

void print_table(const Terminal& terminal, study::ReportTable table) {
  table.rows.insert(table.rows.begin(), table.header);
  terminal.table(table.rows);
  terminal.print("");
}

}  // namespace

void print_comparison(const Terminal& terminal, const study::Comparison& comparison,
                      const std::filesystem::path& folder) {
  terminal.print("");
  terminal.print(study::report_caption(comparison));
  terminal.print("");
  print_table(terminal, study::report_table(comparison));
  if (const std::string verdict = study::report_verdict(comparison); !verdict.empty()) {
    terminal.print(verdict);
    terminal.print("");
  }
  if (comparison.plan.tuning) {
    terminal.print(study::tuning_caption(comparison));
    terminal.print("");
    print_table(terminal, study::tuning_table(comparison));
  }
  terminal.table({{"table", (folder / "table.md").native()},
                  {"figures", (folder / "results.json").native()},
                  {"report", (folder / "report.html").native()}});
}

}  // namespace sape2::cli
