#include "sape2/data/shapes.h"

#include "sape2/base/error.h"
#include "sape2/data/random.h"

#include "data/shapes/scene.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>

namespace sape2::data {
namespace {

constexpr std::int64_t kTrainImages = 4'000;
constexpr std::int64_t kTestImages = 1'000;
constexpr int kSamples = 4;  // points a pixel is averaged over, along each axis

// cos and sin of 2π·k/64, times 2^14.
constexpr std::array<std::int32_t, 7> kCosines{16384, 16305, 16069, 15679, 15137, 14449, 13623};
constexpr std::array<std::int32_t, 7> kSines{0, 1606, 3196, 4756, 6270, 7723, 9102};
constexpr std::int64_t kMaxAngle = 6;  // 33.75°

Colour draw_colour(Draws& draws) {
  Colour colour;
  for (auto& value : colour) value = static_cast<std::uint8_t>(draws.between(24, 231));
  return colour;
}

// Halfway: the two colours of a pattern differ less than patterns do from each other.
Colour between(const Colour& a, const Colour& b) {
  Colour middle;
  for (std::size_t c = 0; c < a.size(); ++c)
    middle[c] = static_cast<std::uint8_t>((a[c] + b[c]) / 2);
  return middle;
}

int difference(const Colour& a, const Colour& b) {
  int sum = 0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += std::abs(a[c] - b[c]);
  return sum;
}

// Of a few draws, the colour that differs most from those already used.
Colour draw_other_colour(Draws& draws, std::initializer_list<Colour> used) {
  constexpr int kCandidates = 6;
  Colour best{};
  int best_difference = -1;
  for (int i = 0; i < kCandidates; ++i) {
    const Colour candidate = draw_colour(draws);
    int nearest = 3 * 255;
    for (const Colour& colour : used) nearest = std::min(nearest, difference(candidate, colour));
    if (nearest > best_difference) {
      best = candidate;
      best_difference = nearest;
    }
  }
  return best;
}

Pattern draw_pattern(Draws& draws, std::int64_t shortest, std::int64_t longest) {
  Pattern pattern{};
  pattern.kind = static_cast<PatternKind>(draws.below(kPatternKinds));
  pattern.period = static_cast<std::int32_t>(draws.between(shortest * kUnit, longest * kUnit));
  pattern.phase_x = static_cast<std::int32_t>(draws.below(kSceneSide));
  pattern.phase_y = static_cast<std::int32_t>(draws.below(kSceneSide));
  return pattern;
}

// A centre that keeps the object inside, or the middle where it does not fit.
std::int32_t draw_centre(Draws& draws, std::int64_t radius, std::int64_t margin) {
  const std::int64_t nearest = std::min<std::int64_t>(radius + margin * kUnit, kSceneSide / 2);
  return static_cast<std::int32_t>(draws.between(nearest, kSceneSide - nearest));
}

// The number of draws is the same whatever the options say: changing one changes nothing else.
Scene draw_scene(const ShapesOptions& options, std::int64_t index) {
  Draws draws(options.seed, static_cast<std::uint64_t>(options.split),
              static_cast<std::uint64_t>(index), Purpose::shapes);
  Scene scene{};
  scene.shape = static_cast<ShapeKind>(index % kShapeKinds);
  auto& behind = scene.background.colours;
  auto& before = scene.texture.colours;
  scene.background = draw_pattern(draws, 5, 10);
  behind[0] = draw_colour(draws);
  behind[1] = between(behind[0], draw_other_colour(draws, {behind[0]}));
  scene.texture = draw_pattern(draws, 3, 6);
  before[0] = draw_other_colour(draws, {behind[0], behind[1]});
  before[1] = between(before[0], draw_other_colour(draws, {behind[0], behind[1], before[0]}));
  scene.radius = static_cast<std::int32_t>(
      draws.between(options.min_object * kUnit / 2, options.max_object * kUnit / 2));
  const std::int64_t angle = draws.between(-kMaxAngle, kMaxAngle);
  scene.cosine = kCosines[std::abs(angle)];
  scene.sine = angle < 0 ? -kSines[-angle] : kSines[angle];
  scene.centre_x = draw_centre(draws, scene.radius, options.margin);
  scene.centre_y = draw_centre(draws, scene.radius, options.margin);
  if (options.centre) {
    scene.centre_x = static_cast<std::int32_t>((*options.centre)[0] * kUnit);
    scene.centre_y = static_cast<std::int32_t>((*options.centre)[1] * kUnit);
  }
  return scene;
}

// The scene coordinate of a sample, counted through all pixels, with the shift taken off.
std::int32_t scene_coordinate(std::int64_t sample, std::int64_t side, std::int64_t shift) {
  return static_cast<std::int32_t>((2 * sample + 1) * kSceneSide / (2 * kSamples * side) -
                                   shift * kUnit);
}

// A row or column of samples: its coordinate, and where that lies in the background's tile.
struct Line {
  std::int32_t coordinate, in_tile;
};

class Renderer {
 public:
  Renderer(const Scene& scene, const ShapesOptions& options)
      : scene_(scene), side_(options.image_size), reach_(scene.radius * 5 / 4) {
    for (std::int64_t i = 0; i < kSamples * side_; ++i) {
      const std::int32_t x = scene_coordinate(i, side_, options.shift_x);
      const std::int32_t y = scene_coordinate(i, side_, options.shift_y);
      columns_.push_back({x, scene.background.across(x)});
      rows_.push_back({y, scene.background.down(y)});
    }
  }

  struct Pixel {
    std::array<std::int32_t, 3> colour{};
    bool on_object = false;
  };

  // The mean of the samples of a pixel.
  Pixel pixel(std::int64_t row, std::int64_t column) const {
    Pixel result;
    int covered = 0;
    for (int i = 0; i < kSamples * kSamples; ++i) {
      const Line& line = rows_[kSamples * row + i / kSamples];
      const Line& across = columns_[kSamples * column + i % kSamples];
      const Colour* colour = object_colour(across.coordinate, line.coordinate);
      covered += colour != nullptr;
      if (colour == nullptr) colour = &scene_.background.at(across.in_tile, line.in_tile);
      for (int c = 0; c < 3; ++c) result.colour[c] += (*colour)[c];
    }
    for (std::int32_t& value : result.colour) value /= kSamples * kSamples;
    result.on_object = 2 * covered >= kSamples * kSamples;
    return result;
  }

 private:
  // The object's colour at a point, or nothing beside it.
  const Colour* object_colour(std::int32_t x, std::int32_t y) const {
    const std::int32_t dx = x - scene_.centre_x, dy = y - scene_.centre_y;
    if (std::abs(dx) > reach_ || std::abs(dy) > reach_) return nullptr;
    const std::int32_t u = (dx * scene_.cosine + dy * scene_.sine) >> 14;
    const std::int32_t v = (dy * scene_.cosine - dx * scene_.sine) >> 14;
    if (!inside(scene_.shape, scene_.radius, u, v)) return nullptr;
    return &scene_.texture.at(scene_.texture.across(u), scene_.texture.down(v));
  }

  const Scene& scene_;
  std::int64_t side_;
  std::int32_t reach_;  // no shape goes farther from its centre
  std::vector<Line> columns_, rows_;
};

void render(const Scene& scene, const ShapesOptions& options, std::int64_t index,
            std::uint8_t* image, std::uint8_t* mask) {
  const Renderer renderer(scene, options);
  const std::int64_t side = options.image_size;
  Draws grain(options.seed, static_cast<std::uint64_t>(options.split),
              static_cast<std::uint64_t>(index), Purpose::grain);
  for (std::int64_t at = 0; at < side * side; ++at) {
    const Renderer::Pixel pixel = renderer.pixel(at / side, at % side);
    mask[at] = pixel.on_object;
    for (int c = 0; c < 3; ++c) {
      const std::int64_t value = pixel.colour[c] + grain.between(-options.noise, options.noise);
      image[c * side * side + at] =
          static_cast<std::uint8_t>(std::clamp<std::int64_t>(value, 0, 255));
    }
  }
}

void check_range(const char* what, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) {
    throw Error(fmt::format("shapes: {} is {}, expected {} … {}", what, value, low, high));
  }
}

void check(const ShapesOptions& options) {
  check_range("the number of images", options.count, 0, 10'000'000);
  check_range("the image size", options.image_size, 8, 1024);
  check_range("the smallest object", options.min_object, 2, 64);
  check_range("the largest object", options.max_object, options.min_object, 64);
  check_range("the margin", options.margin, 0, 16);
  check_range("the shift to the right", options.shift_x, -64, 64);
  check_range("the shift down", options.shift_y, -64, 64);
  check_range("the noise", options.noise, 0, 255);
  if (options.centre) {
    for (const std::int64_t value : *options.centre) check_range("the centre", value, -32, 64);
  }
}

}  // namespace

Shapes make_shapes(const ShapesOptions& options) {
  check(options);
  const std::int64_t standard = options.split == Split::train ? kTrainImages : kTestImages;
  const std::int64_t count = options.count > 0 ? options.count : standard;
  const std::int64_t side = options.image_size;
  Shapes shapes{.dataset = {.name = "shapes",
                            .images = at::empty({count, 3, side, side}, at::kByte),
                            .labels = at::arange(count, at::kLong).remainder(kShapeKinds),
                            .class_names = {kShapeNames.begin(), kShapeNames.end()},
                            .normalisation = {{0.50, 0.50, 0.50}, {0.19, 0.19, 0.19}}},
                .masks = at::empty({count, side, side}, at::kByte)};
  auto* images = shapes.dataset.images.data_ptr<std::uint8_t>();
  auto* masks = shapes.masks.data_ptr<std::uint8_t>();
  at::parallel_for(0, count, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      render(draw_scene(options, i), options, i, images + i * 3 * side * side,
             masks + i * side * side);
    }
  });
  return shapes;
}

Dataset with_masks(Shapes shapes) {
  Dataset dataset = std::move(shapes.dataset);
  dataset.labels.reset();
  dataset.masks = std::move(shapes.masks);
  dataset.class_names = {"background", "object"};
  return dataset;
}

}  // namespace sape2::data
