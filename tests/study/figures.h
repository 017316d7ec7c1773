#pragma once

#include "sape2/study/comparison.h"

#include <string>
#include <utility>
#include <vector>

namespace sape2::study::test {

/// A finished comparison of CIFAR-10 whose rows have these top-1 accuracies, in %, from seed
/// `first_seed` on.
inline Comparison figures(
    const std::vector<std::pair<std::string, std::vector<double>>>& accuracies,
    std::uint64_t first_seed = 0) {
  Comparison comparison;
  comparison.plan.common.data.name = "cifar10";
  comparison.plan.common.recipe.epochs = 50;
  comparison.plan.model = "vit-compact";
  comparison.plan.recipe = "strong";
  std::size_t seeds = 0;
  for (const auto& [encoding, values] : accuracies) {
    RowResult row{.row = {nn::EncodingSpec::parse(encoding)}, .parameters = 1};
    for (std::size_t i = 0; i < values.size(); ++i) {
      row.runs.push_back(
          {.seed = first_seed + i, .figures = {{"top1", values[i] / 100}, {"top5", 0.99}}});
    }
    seeds = std::max(seeds, values.size());
    comparison.plan.rows.push_back(row.row);
    comparison.rows.push_back(std::move(row));
  }
  comparison.plan.seeds = seeds_from(first_seed, static_cast<std::int64_t>(seeds));
  comparison.finished = true;
  return comparison;
}

}  // namespace sape2::study::test
