#pragma once

#include "sape2/draw/format.h"
#include "sape2/draw/rgb.h"

#include <cairo.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sape2::draw {

struct Box {
  double left = 0, top = 0, width = 0, height = 0;

  double right() const { return left + width; }
  double bottom() const { return top + height; }
};

struct Point {
  double x = 0, y = 0;
};

inline constexpr Rgb kInk{0.13, 0.14, 0.17}, kFaintInk{0.42, 0.44, 0.48}, kPaper{1, 1, 1};

/// Pixels of a raster, row by row.
struct Raster {
  std::int64_t height = 0, width = 0;
  std::vector<Rgb> pixels;
};

/// Dots per inch at which a PNG has one pixel a point.
inline constexpr double kPointsPerInch = 72;

/// A page of `width` × `height` points (1/72 inch) that becomes the bytes of a file.
class Canvas {
 public:
  Canvas(Format format, double width, double height, double dots_per_inch);

  struct Style {
    double size = 9;
    Rgb colour = kInk;
    bool bold = false;
    double align = 0;      ///< 0: the text begins at x, 0.5: it is centred there, 1: it ends there
    bool upright = false;  ///< it runs upwards; x is its baseline, and it is aligned along y
  };
  void text(double x, double y, const std::string& words, const Style& style);
  double text_width(const std::string& words, double size, bool bold = false);
  /// The words cut at the end, with an ellipsis, so that they are no wider than `width`.
  std::string fitted(const std::string& words, double width, double size, bool bold = false);

  /// The words in lines no wider than `width`, broken at spaces.
  std::vector<std::string> wrapped(const std::string& words, double width, double size);

  void fill(const Box& box, const Rgb& colour);
  void outline(const Box& box, const Rgb& colour, double thickness, double opacity = 1);
  void line(double x0, double y0, double x1, double y1, const Rgb& colour, double thickness,
            double opacity = 1);
  void polyline(const std::vector<Point>& points, const Rgb& colour, double thickness);
  void dot(const Point& middle, double radius, const Rgb& colour);
  /// Nothing that `draw` draws shows outside the box.
  void clipped(const Box& box, const std::function<void()>& draw);
  /// Every pixel a sharp square.
  void raster(const Box& box, const Raster& raster);

  /// Ends the page.
  std::string bytes() &&;
  /// The same into a file, which appears only when it is whole.
  void write(const std::filesystem::path& path) &&;

 private:
  struct Destroy {
    void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
    void operator()(cairo_t* context) const { cairo_destroy(context); }
  };
  struct Sink {
    std::string bytes;
    std::exception_ptr failure;
  };
  static cairo_status_t pass_on(void* closure, const unsigned char* data, unsigned length);
  void set(const Rgb& colour, double opacity = 1);
  void set_font(double size, bool bold);

  Format format_;
  std::unique_ptr<Sink> sink_ = std::make_unique<Sink>();
  std::unique_ptr<cairo_surface_t, Destroy> surface_;
  std::unique_ptr<cairo_t, Destroy> context_;
};

}  // namespace sape2::draw
