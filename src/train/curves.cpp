#include "train/curves.h"

#include "sape2/components.h"
#include "sape2/train/task.h"

#if SAPE2_HAVE_DRAWING

#include "draw/line_chart.h"

#include <array>

namespace sape2::train {
namespace {

constexpr double kWidth = 1200, kHeight = 480, kTitleSize = 18;
constexpr draw::Rgb kBlue{0.12, 0.42, 0.75}, kOrange{0.90, 0.45, 0.10}, kPaleBlue{0.70, 0.82, 0.95};
constexpr std::array<draw::Rgb, 3> kFigureColours{kBlue, kOrange, draw::Rgb{0.18, 0.57, 0.29}};

}  // namespace

bool can_draw_curves() {
  return true;
}

void draw_curves(const RunHistory& history, const std::string& title,
                 const std::filesystem::path& file) {
  draw::ChartLine steps{"", kPaleBlue, 1.5}, train{"training", kBlue}, test{"test", kOrange};
  std::vector<draw::ChartLine> figures;
  const double steps_per_epoch = history.epochs.empty()
                                     ? 1
                                     : static_cast<double>(history.epochs.front().step) /
                                           static_cast<double>(history.epochs.front().epoch);
  for (const StepRecord& record : history.steps) {
    steps.points.push_back({static_cast<double>(record.step) / steps_per_epoch, record.loss});
  }
  const auto add_test = [&](double epoch, const TestRecord& tested) {
    test.points.push_back({epoch, tested.loss});
    for (std::size_t i = 0; i < tested.figures.size(); ++i) {
      const auto& [key, value] = tested.figures[i];
      if (i == figures.size()) {
        figures.push_back({figure_name(key), kFigureColours[i % kFigureColours.size()]});
      }
      figures[i].points.push_back({epoch, 100 * value});
    }
  };
  if (history.start) add_test(0, *history.start);
  for (const EpochRecord& record : history.epochs) {
    const auto epoch = static_cast<double>(record.epoch);
    train.points.push_back({epoch, record.train_loss});
    if (record.test) add_test(epoch, *record.test);
  }
  draw::Canvas canvas(draw::Format::png, kWidth, kHeight, draw::kPointsPerInch);
  canvas.text(kWidth / 2, 30, title, {.size = kTitleSize, .align = 0.5});
  draw_line_chart(canvas, {80, 84, 480, 320}, "loss", "epoch", {steps, train, test});
  draw_line_chart(canvas, {680, 84, 480, 320}, "test images, in %", "epoch", figures);
  std::move(canvas).write(file);
}

}  // namespace sape2::train

#else

namespace sape2::train {

bool can_draw_curves() {
  return false;
}

void draw_curves(const RunHistory&, const std::string&, const std::filesystem::path&) {}

}  // namespace sape2::train

#endif
