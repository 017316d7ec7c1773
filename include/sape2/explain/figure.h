#pragma once

#include "sape2/data/image.h"
#include "sape2/draw/format.h"
#include "sape2/explain/colours.h"
#include "sape2/explain/inspection.h"
#include "sape2/explain/view.h"
#include "sape2/io/tensor_file.h"

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

/// The paper's picture: an image, its bias between all patches, and the maps seen from chosen
/// patches. First the numbers, then the drawing, so that what is drawn can be tested and saved.
namespace sape2::explain {

struct ChosenPatch {
  Patch patch;
  std::string role;  ///< "subject", "background", or nothing
};

/// What one model makes of one image.
struct ModelPanels {
  std::string title;       ///< the model's encoding and name
  std::string prediction;  ///< "cat 62 %"
  infer::Grid grid;
  ScaleKind kind = ScaleKind::distance;
  ValueRange range;   ///< of the matrix and the maps; of attention, of the maps alone
  at::Tensor matrix;  ///< [n, n]; undefined if none is drawn
  std::vector<ChosenPatch> patches;      ///< on this model's grid
  std::vector<at::Tensor> maps;          ///< [rows, cols] for each of them
  std::vector<SoftPositions> positions;  ///< for each of them, for `positions` only
  std::optional<double> logit_factor;  ///< of a bias: takes it into the logits, if one number does
  std::vector<std::string> captions;   ///< what the panels show (caption.h)
  std::string warning;                 ///< that tables clamp, or nothing
};

/// One image, through one model or two.
struct FigureRow {
  std::string name;   ///< of the image
  std::string label;  ///< its true class, if known
  data::Image image;
  std::vector<ModelPanels> models;
};

struct Figure {
  What what = What::bias;
  Selection selection;
  std::vector<FigureRow> rows;
};

struct FigureOptions {
  What what = What::bias;
  Selection selection;
  std::vector<Patch> patches;  ///< none: chosen by choose_patches()
  bool with_matrix = true;
  std::int64_t most_matrix_rows = 512;  ///< a matrix of more patches is averaged down to this
};

/// One inspected image: `inspections` of the models, and their names. Patches count on the first
/// model's grid; where another's differs, the patch at the same place is used.
FigureRow figure_row(const Picture& picture, const std::vector<const Inspection*>& inspections,
                     const std::vector<std::string>& names, const FigureOptions& options);

/// Gives all panels of a kind one range, so that images can be compared.
void share_ranges(Figure& figure);

/// The numbers of a figure by name: `image`, `patches`, `maps`, `matrix`, and for positions
/// `positions_x`, `positions_y`. Names of several images or models begin with `image0_`, `model1_`.
io::NamedTensors figure_numbers(const Figure& figure);

using FigureFormat = draw::Format;
/// By a file's ending; throws Error for any other.
FigureFormat figure_format(const std::filesystem::path& path);

struct DrawOptions {
  Palette palette = Palette::green;
  bool contact_sheet = false;  ///< small: each image and the map from its first patch
  double dots_per_inch = 144;  ///< of a PNG
};

/// The figure as the bytes of a file. Throws Error if this build cannot draw (Cairo is missing)
/// or the picture would be too large.
std::string render_figure(const Figure& figure, FigureFormat format, const DrawOptions& options);

/// The same into a file, which appears only when it is whole.
void write_figure(const std::filesystem::path& path, const Figure& figure,
                  const DrawOptions& options);

}  // namespace sape2::explain
