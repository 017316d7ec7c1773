#include "sape2/data/shapes.h"
#include "sape2/nn/vit.h"
#include "sape2/train/task.h"

#include "study/probes/probe.h"

#include <fmt/format.h>

#include <algorithm>

namespace sape2::study {
namespace {

struct ObjectSizes {
  std::int64_t least, most;
};

// In 1/32 of the image's side; the defaults of ShapesOptions are what training shows.
constexpr ObjectSizes kOthers[] = {{6, 9}, {10, 13}};
constexpr ObjectSizes kLarger[] = {{27, 30}, {31, 34}};

}  // namespace

ProbeResult probe_scale(nn::ViT& model, const ProbeOptions& options) {
  ProbeResult result{.name = "scale",
                     .question =
                         "Accuracy on `shapes` when its objects are smaller or larger than "
                         "in training, at the same size of the image.",
                     .reading = ""};
  if (!knows_shapes(model)) {
    result.reading = "Left out: the model was not trained on the classes of `shapes`.";
    return result;
  }
  const data::ShapesOptions trained;
  std::vector<ObjectSizes> sizes(std::begin(kOthers), std::end(kOthers));
  sizes.push_back({trained.min_object, trained.max_object});
  sizes.insert(sizes.end(), std::begin(kLarger), std::end(kLarger));

  const train::Task& task = train::task_of(model);
  ProbeTable table{"accuracy by size of the object, in 1/32 of the image",
                   figure_columns(task, "object")};
  double at_home = 0, elsewhere = 0;
  for (const ObjectSizes& size : sizes) {
    data::ShapesOptions shapes{.split = data::Split::test, .count = options.images};
    shapes.image_size = model.config().vit.image_size.height;
    shapes.min_object = size.least;
    shapes.max_object = size.most;
    const train::Measured measured = task.measure(model, shapes_for(task, shapes));
    const bool home = size.least == trained.min_object;
    (home ? at_home : elsewhere) += train::main_figure(measured.figures) / (home ? 1.0 : 4.0);
    table.rows.push_back({fmt::format("{}–{}{}", size.least, size.most, home ? " (trained)" : ""),
                          figure_values(measured)});
  }
  result.reading = fmt::format("{:.1f} % at the sizes trained at, {:.1f} % on average at others.",
                               100 * at_home, 100 * elsewhere);
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace sape2::study
