#include "sape2/explain/figure.h"

#include "sape2/base/error.h"
#include "sape2/components.h"
#include "sape2/explain/caption.h"

#if SAPE2_HAVE_DRAWING
#include "draw/canvas.h"
#endif
#include "explain/hand_made.h"
#include "io/raw_file.h"
#include "support/error_text.h"
#include "support/file_bytes.h"
#include "support/scratch_folder.h"

#include <chrono>

namespace sape2::explain {
namespace {

using namespace sape2::testing;
using test::hand_made_model;
using test::some_image;

Figure figure_of(const FigureOptions& options, const std::vector<std::string>& encodings,
                 int images = 1) {
  Figure figure{.what = options.what, .selection = options.selection, .rows = {}};
  for (int i = 0; i < images; ++i) {
    std::vector<Inspection> held;
    std::vector<const Inspection*> pointers;
    held.reserve(encodings.size());
    for (const std::string& encoding : encodings) {
      held.emplace_back(hand_made_model(encoding), some_image(12 + 8 * i, 16));
      pointers.push_back(&held.back());
    }
    figure.rows.push_back(figure_row({.name = "image", .image = some_image(), .label = "cat"},
                                     pointers, encodings, options));
  }
  return figure;
}

TEST(Figure, HoldsTheNumbersOfTheInspection) {
  const Figure figure = figure_of({.patches = {{1, 2}, {0, 0}}}, {"sape2-k"});
  const io::NamedTensors numbers = figure_numbers(figure);
  const Inspection seen(hand_made_model("sape2-k"), some_image());
  EXPECT_TRUE(
      numbers.at("maps").view({2, 12}).allclose(seen.rows(What::bias, {}, {{1, 2}, {0, 0}})));
  EXPECT_TRUE(numbers.at("matrix").allclose(seen.matrix(What::bias, {}, 512)));
  EXPECT_EQ(numbers.at("patches")[0][1].item<int64_t>(), 2);
  EXPECT_EQ(numbers.at("image").sizes(), at::IntArrayRef({12, 16, 3}));
  const ModelPanels& panels = figure.rows[0].models[0];
  EXPECT_EQ(panels.range.low, 0);
  EXPECT_FLOAT_EQ(static_cast<float>(panels.range.high), numbers.at("matrix").max().item<float>());
}

TEST(Figure, ChoosesTwoPatchesAndNamesSeveralImagesAndModels) {
  const Figure figure = figure_of({.what = What::positions}, {"sape2-k", "cope"}, 2);
  ASSERT_EQ(figure.rows[0].models[0].patches.size(), 2U);
  EXPECT_EQ(figure.rows[0].models[0].patches[0].role, "subject");
  const io::NamedTensors numbers = figure_numbers(figure);
  EXPECT_EQ(numbers.at("image0_model0_positions_x").sizes(), at::IntArrayRef({2, 4}));
  EXPECT_EQ(numbers.at("image1_model1_positions").sizes(), at::IntArrayRef({2, 20}));
}

TEST(Figure, OfAModelForSegmentationNamesTheLargestShares) {
  const Inspection seen(hand_made_model("sape2-k", 0, "segmentation"), some_image());
  const FigureRow row =
      figure_row({.name = "image", .image = some_image(), .label = ""}, {&seen}, {"a model"}, {});
  const std::string& words = row.models[0].prediction;
  EXPECT_TRUE(words.starts_with("class ")) << words;
  EXPECT_NE(words.find(" %, class "), std::string::npos) << words;
}

TEST(Figure, ABiasOfBothSignsHasABalancedScale) {
  Figure figure = figure_of({.patches = {{0, 0}}}, {"sape2-rel-k"}, 2);
  share_ranges(figure);
  const ModelPanels& panels = figure.rows[1].models[0];
  EXPECT_EQ(panels.kind, ScaleKind::balanced);
  EXPECT_EQ(panels.range.low, -panels.range.high);
  EXPECT_EQ(panels.range.high, figure.rows[0].models[0].range.high);
}

TEST(Figure, HasACaptionForEachModel) {
  const Figure figure = figure_of({.patches = {{0, 0}}}, {"sape2-k", "sape2-rel-k"});
  const auto& models = figure.rows[0].models;
  expect_contains(models[0].captions[0], "Far patches gain attention");
  // The words speak of the numbers that are drawn.
  const double most =
      std::max(models[0].matrix.max().item<double>(), models[0].maps[0].max().item<double>());
  expect_contains(models[0].captions[0], effect_text(most / std::sqrt(8)));
  EXPECT_NEAR(*models[0].logit_factor, 1 / std::sqrt(8), 1e-6);
  expect_contains(models[1].captions[0], "Orange patches gain attention");
  EXPECT_EQ(models[0].warning, "");
  EXPECT_TRUE(models[0].title.starts_with("sape2-k"));
}

// Captions have to be read whole: no line is wider than the figure, and no word is lost.
TEST(Figure, CaptionsAreBrokenIntoLines) {
  if (!SAPE2_HAVE_DRAWING) GTEST_SKIP() << "this build cannot draw";
#if SAPE2_HAVE_DRAWING
  draw::Canvas canvas(FigureFormat::svg, 10, 10, 72);
  const std::string words =
      figure_of({.patches = {{0, 0}}}, {"sape2-k"}).rows[0].models[0].captions[0];
  std::string joined;
  for (const std::string& line : canvas.wrapped(words, 120, 9)) {
    EXPECT_LE(canvas.text_width(line, 9), 120) << line;
    joined += (joined.empty() ? "" : " ") + line;
  }
  EXPECT_EQ(joined, words);
#endif
}

// Models stand below one another: a figure of two is taller, not wider, than one of one.
TEST(Figure, ComparesModelsInLines) {
  if (!SAPE2_HAVE_DRAWING || !SAPE2_HAVE_IMAGES) GTEST_SKIP() << "this build cannot draw";
  const auto size_of = [](const Figure& figure) {
    const std::string png = render_figure(figure, FigureFormat::png, {.dots_per_inch = 72});
    const data::Image drawn = data::decode_image(
        std::span(reinterpret_cast<const std::uint8_t*>(png.data()), png.size()), "figure");
    return std::pair(drawn.width, drawn.height);
  };
  const auto one = size_of(figure_of({}, {"sape2-k"}));
  const auto two = size_of(figure_of({}, {"sape2-k", "sape2-rel-k"}));
  EXPECT_EQ(two.first, one.first);
  EXPECT_GT(two.second, one.second * 3 / 2);
}

TEST(Figure, IsDrawnInEveryFormat) {
  if (!SAPE2_HAVE_DRAWING) GTEST_SKIP() << "this build cannot draw";
  for (const What what :
       {What::bias, What::bias_y, What::gates, What::positions, What::attention}) {
    SCOPED_TRACE(to_string(what));
    const Figure figure = figure_of({.what = what}, {"sape2-k", "sape2-rel-qk"}, 2);
    const DrawOptions options{.palette = Palette::cividis};
    EXPECT_TRUE(render_figure(figure, FigureFormat::png, options).starts_with("\x89PNG"));
    EXPECT_TRUE(render_figure(figure, FigureFormat::pdf, options).starts_with("%PDF"));
    const std::string svg = render_figure(figure, FigureFormat::svg, options);
    EXPECT_NE(svg.find("<svg"), std::string::npos);
    EXPECT_NE(svg.find("</svg>"), std::string::npos);
  }
}

// A pixel of the map in the PNG has the colour of its value.
TEST(Figure, TheSheetShowsTheColoursOfTheValues) {
  if (!SAPE2_HAVE_DRAWING || !SAPE2_HAVE_IMAGES) GTEST_SKIP() << "this build cannot draw";
  const Figure figure = figure_of({.patches = {{1, 2}}, .with_matrix = false}, {"sape2-k"});
  const std::string png = render_figure(figure, FigureFormat::png, {.contact_sheet = true});
  const data::Image drawn = data::decode_image(
      std::span(reinterpret_cast<const std::uint8_t*>(png.data()), png.size()), "figure");
  const ModelPanels& panels = figure.rows[0].models[0];
  const double far = panels.maps[0].max().item<double>();
  ASSERT_GT(far, 0);
  const Rgb expected = colour_at(ScaleKind::distance, Palette::green, 1);
  int found = 0;
  for (std::size_t i = 0; i + 2 < drawn.pixels.size(); i += 3) {
    const auto near = [&](int channel, double value) {
      return std::abs(drawn.pixels[i + static_cast<std::size_t>(channel)] - 255 * value) < 1.5;
    };
    found += near(0, expected.red) && near(1, expected.green) && near(2, expected.blue);
  }
  EXPECT_GT(found, 500);  // a patch of 46 × 46 pixels, less its border
}

TEST(Figure, LongNamesAreCutBeforeTheyAreMeasured) {
  if (!SAPE2_HAVE_DRAWING) GTEST_SKIP() << "this build cannot draw";
  Figure figure = figure_of({}, {"sape2-k"});
  for (int i = 0; i < 100'000; ++i) figure.rows[0].name += "ö";
  const auto start = std::chrono::steady_clock::now();
  const std::string png = render_figure(figure, FigureFormat::png, {.contact_sheet = true});
  EXPECT_TRUE(png.starts_with("\x89PNG"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(Figure, WritesWholeFilesOrNone) {
  if (!SAPE2_HAVE_DRAWING) GTEST_SKIP() << "this build cannot draw";
  const ScratchFolder folder;
  const Figure figure = figure_of({}, {"sape2-k"});
  write_figure(folder / "a.PNG", figure, {});
  EXPECT_TRUE(file_bytes(folder / "a.PNG").starts_with("\x89PNG"));
  expect_contains(error_text([&] { write_figure(folder / "a.gif", figure, {}); }),
                  "must end in .png, .svg or .pdf");
  EXPECT_THROW(write_figure(folder / "no/a.png", figure, {}), Error);
  EXPECT_EQ(folder.file_count(), 1U);
  expect_contains(
      error_text([&] { write_figure(folder / "b.png", figure, {.dots_per_inch = 1e6}); }),
      "too large");
}

}  // namespace
}  // namespace sape2::explain
