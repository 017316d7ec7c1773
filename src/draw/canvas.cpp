#include "draw/canvas.h"

#include "sape2/base/error.h"
#include "sape2/base/utf8.h"
#include "sape2/io/atomic_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <sstream>

#include <cairo-pdf.h>
#include <cairo-svg.h>

namespace sape2::draw {
namespace {

constexpr double kMostPixels = 32000;  // along a side; Cairo ends at 32767

std::uint32_t pixel_of(const Rgb& colour) {
  const auto byte = [](double value) {
    return static_cast<std::uint32_t>(std::lround(std::clamp(value, 0.0, 1.0) * 255));
  };
  return byte(colour.red) << 16 | byte(colour.green) << 8 | byte(colour.blue);
}

}  // namespace

cairo_status_t Canvas::pass_on(void* closure, const unsigned char* data, unsigned length) {
  // Exceptions must not pass through Cairo's C code.
  auto& sink = *static_cast<Sink*>(closure);
  try {
    sink.bytes.append(reinterpret_cast<const char*>(data), length);
    return CAIRO_STATUS_SUCCESS;
  } catch (...) {
    sink.failure = std::current_exception();
    return CAIRO_STATUS_WRITE_ERROR;
  }
}

Canvas::Canvas(Format format, double width, double height, double dots_per_inch) : format_(format) {
  const double scale = format == Format::png ? dots_per_inch / kPointsPerInch : 1;
  if (std::max(width, height) * scale > kMostPixels) {
    throw Error(
        fmt::format("the figure would be {:.0f} × {:.0f} pixels, too large to draw; give fewer "
                    "images or fewer dots per inch",
                    width * scale, height * scale));
  }
  if (format == Format::png) {
    surface_.reset(cairo_image_surface_create(CAIRO_FORMAT_RGB24,
                                              static_cast<int>(std::ceil(width * scale)),
                                              static_cast<int>(std::ceil(height * scale))));
  } else if (format == Format::svg) {
    surface_.reset(cairo_svg_surface_create_for_stream(pass_on, sink_.get(), width, height));
  } else {
    surface_.reset(cairo_pdf_surface_create_for_stream(pass_on, sink_.get(), width, height));
  }
  context_.reset(cairo_create(surface_.get()));
  cairo_scale(context_.get(), scale, scale);
  set(kPaper);
  cairo_paint(context_.get());
}

void Canvas::set(const Rgb& colour, double opacity) {
  cairo_set_source_rgba(context_.get(), colour.red, colour.green, colour.blue, opacity);
}

void Canvas::set_font(double size, bool bold) {
  cairo_select_font_face(context_.get(), "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                         bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(context_.get(), size);
}

double Canvas::text_width(const std::string& words, double size, bool bold) {
  set_font(size, bold);
  cairo_text_extents_t extents;
  cairo_text_extents(context_.get(), words.c_str(), &extents);
  return extents.x_advance;
}

std::string Canvas::fitted(const std::string& words, double width, double size, bool bold) {
  // No figure has room for more, and measuring takes as long as the text.
  constexpr std::size_t kLongest = 500;
  if (words.size() <= kLongest && text_width(words, size, bold) <= width) return words;
  std::string shorter = words.substr(0, kLongest);
  while (!shorter.empty() && !is_utf8(shorter)) shorter.pop_back();
  while (!shorter.empty() && text_width(shorter + "…", size, bold) > width) {
    // Whole characters only: a continuation byte never stands alone.
    do shorter.pop_back();
    while (!shorter.empty() && (static_cast<unsigned char>(shorter.back()) & 0xC0) == 0x80);
    if (!shorter.empty() && static_cast<unsigned char>(shorter.back()) >= 0xC0) shorter.pop_back();
  }
  return shorter + "…";
}

std::vector<std::string> Canvas::wrapped(const std::string& words, double width, double size) {
  std::vector<std::string> lines;
  std::istringstream stream(words);
  for (std::string word; stream >> word;) {
    const std::string longer = lines.empty() ? word : lines.back() + " " + word;
    if (!lines.empty() && text_width(longer, size) <= width) {
      lines.back() = longer;
    } else {
      lines.push_back(word);
    }
  }
  return lines;
}

void Canvas::text(double x, double y, const std::string& words, const Style& style) {
  const double width = text_width(words, style.size, style.bold);
  set(style.colour);
  cairo_save(context_.get());
  cairo_translate(context_.get(), x, y);
  if (style.upright) cairo_rotate(context_.get(), -std::numbers::pi / 2);
  cairo_move_to(context_.get(), -style.align * width, 0);
  cairo_show_text(context_.get(), words.c_str());
  cairo_restore(context_.get());
}

void Canvas::fill(const Box& box, const Rgb& colour) {
  set(colour);
  cairo_rectangle(context_.get(), box.left, box.top, box.width, box.height);
  cairo_fill(context_.get());
}

void Canvas::outline(const Box& box, const Rgb& colour, double thickness, double opacity) {
  set(colour, opacity);
  cairo_set_line_width(context_.get(), thickness);
  cairo_rectangle(context_.get(), box.left, box.top, box.width, box.height);
  cairo_stroke(context_.get());
}

void Canvas::line(double x0, double y0, double x1, double y1, const Rgb& colour, double thickness,
                  double opacity) {
  set(colour, opacity);
  cairo_set_line_width(context_.get(), thickness);
  cairo_move_to(context_.get(), x0, y0);
  cairo_line_to(context_.get(), x1, y1);
  cairo_stroke(context_.get());
}

void Canvas::polyline(const std::vector<Point>& points, const Rgb& colour, double thickness) {
  set(colour);
  cairo_set_line_width(context_.get(), thickness);
  cairo_set_line_join(context_.get(), CAIRO_LINE_JOIN_ROUND);
  cairo_new_path(context_.get());
  for (const Point& point : points) cairo_line_to(context_.get(), point.x, point.y);
  cairo_stroke(context_.get());
}

void Canvas::dot(const Point& middle, double radius, const Rgb& colour) {
  set(colour);
  cairo_new_path(context_.get());
  cairo_arc(context_.get(), middle.x, middle.y, radius, 0, 2 * std::numbers::pi);
  cairo_fill(context_.get());
}

void Canvas::clipped(const Box& box, const std::function<void()>& draw) {
  cairo_save(context_.get());
  cairo_rectangle(context_.get(), box.left, box.top, box.width, box.height);
  cairo_clip(context_.get());
  draw();
  cairo_restore(context_.get());
}

void Canvas::raster(const Box& box, const Raster& raster) {
  const auto width = static_cast<int>(raster.width), height = static_cast<int>(raster.height);
  const std::unique_ptr<cairo_surface_t, Destroy> image(
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height));
  cairo_surface_flush(image.get());
  unsigned char* data = cairo_image_surface_get_data(image.get());
  if (data == nullptr) throw Error("cannot draw the figure: there is not enough memory");
  const int stride = cairo_image_surface_get_stride(image.get());
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const std::uint32_t pixel =
          pixel_of(raster.pixels[static_cast<std::size_t>(y) * static_cast<std::size_t>(width) +
                                 static_cast<std::size_t>(x)]);
      std::memcpy(data + y * stride + 4 * x, &pixel, sizeof pixel);
    }
  }
  cairo_surface_mark_dirty(image.get());
  cairo_save(context_.get());
  cairo_translate(context_.get(), box.left, box.top);
  cairo_scale(context_.get(), box.width / width, box.height / height);
  cairo_set_source_surface(context_.get(), image.get(), 0, 0);
  cairo_pattern_set_filter(cairo_get_source(context_.get()), CAIRO_FILTER_NEAREST);
  cairo_rectangle(context_.get(), 0, 0, width, height);
  cairo_fill(context_.get());
  cairo_restore(context_.get());
}

std::string Canvas::bytes() && {
  cairo_status_t status = cairo_status(context_.get());
  if (status == CAIRO_STATUS_SUCCESS && format_ == Format::png) {
    status = cairo_surface_write_to_png_stream(surface_.get(), pass_on, sink_.get());
  } else if (status == CAIRO_STATUS_SUCCESS) {
    cairo_show_page(context_.get());
    cairo_surface_finish(surface_.get());
    status = cairo_surface_status(surface_.get());
  }
  if (sink_->failure) std::rethrow_exception(sink_->failure);
  if (status != CAIRO_STATUS_SUCCESS) {
    throw Error(std::string("cannot draw the figure: ") + cairo_status_to_string(status));
  }
  return std::move(sink_->bytes);
}

void Canvas::write(const std::filesystem::path& path) && {
  io::write_file(path, std::move(*this).bytes());
}

}  // namespace sape2::draw
