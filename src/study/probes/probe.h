#pragma once

#include "sape2/data/shapes.h"
#include "sape2/study/probes.h"
#include "sape2/train/task.h"

#include <string>

namespace sape2::study {

/// Images that go through a model at once.
inline constexpr int64_t kProbeBatch = 50;

/// A bias smaller than this is the rounding of an encoding that has none.
inline constexpr double kLeastBias = 1e-3;

/// One file a probe.
ProbeResult probe_sizes(nn::ViT& model, const ProbeOptions& options);
ProbeResult probe_scale(nn::ViT& model, const ProbeOptions& options);
ProbeResult probe_translation(nn::ViT& model, const ProbeOptions& options);
ProbeResult probe_region(nn::ViT& model, const ProbeOptions& options);
ProbeResult probe_gates(nn::ViT& model, const ProbeOptions& options);

/// The columns of a table of what a task measures, and a row's values: figures in %, then the loss.
std::vector<std::string> figure_columns(const train::Task& task, const std::string& labels);
std::vector<double> figure_values(const train::Measured& measured);

/// Images of `shapes` with what the task learns from.
data::Dataset shapes_for(const train::Task& task, const data::ShapesOptions& options);

/// Whether the model tells the classes of `shapes` apart.
bool knows_shapes(const nn::ViT& model);

/// Whether the model takes the images of `shapes` at all: three channels, square.
bool takes_shapes(const nn::ViT& model);

}  // namespace sape2::study
