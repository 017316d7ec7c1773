#include "sape2/study/confusion_picture.h"

#include "sape2/base/error.h"
#include "sape2/components.h"

#if SAPE2_HAVE_DRAWING

#include "sape2/base/in_quotes.h"
#include "sape2/io/atomic_file.h"

#include <cairo.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>

namespace sape2::study {
namespace {

constexpr double kTitleSize = 18, kTextSize = 13;
constexpr double kMargin = 24;
constexpr std::int64_t kMostNamedClasses = 40;  // more names than that cannot be read
constexpr std::int64_t kMostNumberedClasses = 16;

struct Destroy {
  void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
  void operator()(cairo_t* context) const { cairo_destroy(context); }
};
using Surface = std::unique_ptr<cairo_surface_t, Destroy>;
using Context = std::unique_ptr<cairo_t, Destroy>;

double cell_size(std::int64_t classes) {
  if (classes <= kMostNumberedClasses) return 46;
  return classes <= kMostNamedClasses ? 20 : std::max(2.0, 800.0 / static_cast<double>(classes));
}

double text_width(cairo_t* context, const std::string& text) {
  cairo_text_extents_t extents;
  cairo_text_extents(context, text.c_str(), &extents);
  return extents.x_advance;
}

void set_font(cairo_t* context, double size) {
  cairo_select_font_face(context, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(context, size);
}

// White over pale blue to dark blue.
void set_share_colour(cairo_t* context, double share) {
  cairo_set_source_rgb(context, 1 - 0.93 * share, 1 - 0.72 * share, 1 - 0.42 * share);
}

cairo_status_t pass_on(void* closure, const unsigned char* data, unsigned length) {
  // Exceptions must not pass through Cairo's C code.
  try {
    static_cast<io::AtomicFile*>(closure)->write(std::as_bytes(std::span(data, length)));
    return CAIRO_STATUS_SUCCESS;
  } catch (...) {
    return CAIRO_STATUS_WRITE_ERROR;
  }
}

class ConfusionPicture {
 public:
  ConfusionPicture(const ConfusionMatrix& matrix, const std::string& title)
      : matrix_(matrix), cell_(cell_size(matrix.classes)) {
    measure(title);
    surface_.reset(cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(width_),
                                              static_cast<int>(height_)));
    context_.reset(cairo_create(surface_.get()));
    cairo_set_source_rgb(context_.get(), 1, 1, 1);
    cairo_paint(context_.get());
    draw_title(title);
    draw_cells();
    if (named()) draw_names();
  }

  void write(const std::filesystem::path& path) const {
    io::AtomicFile file(path);
    const auto status = cairo_surface_write_to_png_stream(surface_.get(), pass_on, &file);
    if (status != CAIRO_STATUS_SUCCESS) {
      throw Error("cannot write the picture " + in_quotes(path) + ": " +
                  cairo_status_to_string(status));
    }
    file.commit();
  }

 private:
  bool named() const {
    return !matrix_.class_names.empty() && matrix_.classes <= kMostNamedClasses;
  }

  void measure(const std::string& title) {
    const Surface scratch(cairo_image_surface_create(CAIRO_FORMAT_RGB24, 1, 1));
    const Context context(cairo_create(scratch.get()));
    set_font(context.get(), kTextSize);
    double longest = 0;
    if (named()) {
      for (const auto& name : matrix_.class_names) {
        longest = std::max(longest, text_width(context.get(), name));
      }
    }
    set_font(context.get(), kTitleSize);
    const double side = cell_ * static_cast<double>(matrix_.classes);
    left_ = kMargin + longest + 12;
    top_ = 76;
    width_ = std::max(left_ + side, kMargin + text_width(context.get(), title)) + kMargin;
    height_ = top_ + side + longest + 12 + kMargin;
  }

  void text(double x, double y, const std::string& words, double align) const {
    cairo_move_to(context_.get(), x - align * text_width(context_.get(), words), y);
    cairo_show_text(context_.get(), words.c_str());
  }

  void draw_title(const std::string& title) const {
    cairo_set_source_rgb(context_.get(), 0.15, 0.15, 0.18);
    set_font(context_.get(), kTitleSize);
    text(kMargin, 34, title, 0);
    set_font(context_.get(), kTextSize);
    text(kMargin, 58, "row: the true class; column: the one predicted; in % of the row", 0);
  }

  void draw_cells() const {
    for (std::int64_t row = 0; row < matrix_.classes; ++row) {
      const auto counts = std::span(matrix_.counts)
                              .subspan(static_cast<std::size_t>(row * matrix_.classes),
                                       static_cast<std::size_t>(matrix_.classes));
      std::int64_t sum = 0;
      for (const auto count : counts) sum += count;
      for (std::int64_t column = 0; column < matrix_.classes; ++column) {
        const auto count = static_cast<double>(counts[static_cast<std::size_t>(column)]);
        draw_cell(row, column, sum == 0 ? 0 : count / static_cast<double>(sum));
      }
    }
  }

  void draw_cell(std::int64_t row, std::int64_t column, double share) const {
    const double gap = matrix_.classes <= kMostNamedClasses ? 1 : 0;
    const double x = left_ + cell_ * static_cast<double>(column);
    const double y = top_ + cell_ * static_cast<double>(row);
    set_share_colour(context_.get(), share);
    cairo_rectangle(context_.get(), x, y, cell_ - gap, cell_ - gap);
    cairo_fill(context_.get());
    if (matrix_.classes > kMostNumberedClasses || share < 0.005) return;
    const double ink = share > 0.5 ? 1 : 0.2;
    cairo_set_source_rgb(context_.get(), ink, ink, ink);
    text(x + cell_ / 2, y + cell_ / 2 + 5, fmt::format("{:.0f}", 100 * share), 0.5);
  }

  void draw_names() const {
    cairo_set_source_rgb(context_.get(), 0.15, 0.15, 0.18);
    for (std::int64_t i = 0; i < matrix_.classes; ++i) {
      const std::string& name = matrix_.class_names[static_cast<std::size_t>(i)];
      const double middle = cell_ * (static_cast<double>(i) + 0.5);
      text(left_ - 8, top_ + middle + 5, name, 1);
      cairo_save(context_.get());
      cairo_translate(context_.get(), left_ + middle + 4,
                      top_ + cell_ * static_cast<double>(matrix_.classes) + 8);
      cairo_rotate(context_.get(), -1.5707963267948966);
      text(0, 0, name, 1);
      cairo_restore(context_.get());
    }
  }

  const ConfusionMatrix& matrix_;
  double cell_, left_ = 0, top_ = 0, width_ = 0, height_ = 0;
  Surface surface_;
  Context context_;
};

}  // namespace

void draw_confusion(const ConfusionMatrix& matrix, const std::string& title,
                    const std::filesystem::path& file) {
  ConfusionPicture(matrix, title).write(file);
}

}  // namespace sape2::study

#else

namespace sape2::study {

void draw_confusion(const ConfusionMatrix&, const std::string&, const std::filesystem::path& file) {
  throw Error("cannot draw \"" + file.native() +
              "\": this build has no Cairo; install libcairo2-dev and build again");
}

}  // namespace sape2::study

#endif
