#include "sape2/explain/patch_choice.h"

#include "sape2/explain/look.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace sape2::explain {
namespace {

constexpr int kRounds = 20;
constexpr double kTiny = 1e-12;

using Vector = std::vector<double>;
using Group = std::vector<bool>;  // which patches belong to it

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void make_unit(Vector& vector) {
  const double length = std::max(kTiny, std::sqrt(dot(vector, vector)));
  for (double& entry : vector) entry /= length;
}

// Each patch as a direction away from the mean of all.
std::vector<Vector> directions(std::span<const float> patches, std::size_t count) {
  const std::size_t width = patches.size() / count;
  Vector mean(width);
  for (std::size_t i = 0; i < patches.size(); ++i) {
    mean[i % width] += static_cast<double>(patches[i]) / static_cast<double>(count);
  }
  std::vector<Vector> all(count, Vector(width));
  for (std::size_t i = 0; i < patches.size(); ++i) {
    all[i / width][i % width] = static_cast<double>(patches[i]) - mean[i % width];
  }
  for (Vector& vector : all) make_unit(vector);
  return all;
}

Group border_of(const infer::Grid& grid) {
  Group border;
  for (std::int64_t y = 0; y < grid.rows; ++y) {
    for (std::int64_t x = 0; x < grid.cols; ++x) {
      border.push_back(grid.rows <= 2 || grid.cols <= 2 || y == 0 || x == 0 || y == grid.rows - 1 ||
                       x == grid.cols - 1);
    }
  }
  return border;
}

Group middle_of(const infer::Grid& grid) {
  const auto within = [](std::int64_t place, std::int64_t n) {
    return place >= n / 3 && place < n / 3 + (n + 2) / 3;
  };
  Group middle;
  for (std::int64_t y = 0; y < grid.rows; ++y) {
    for (std::int64_t x = 0; x < grid.cols; ++x) {
      middle.push_back(within(y, grid.rows) && within(x, grid.cols));
    }
  }
  return middle;
}

Vector mean_of(const std::vector<Vector>& vectors, const Group& members, bool in = true) {
  Vector mean(vectors.front().size());
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    if (members[i] != in) continue;
    for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += vectors[i][j];
  }
  make_unit(mean);
  return mean;
}

// The share of a group that lies on the border.
double share_of(const Group& members, bool in, const Group& border) {
  double all = 0, on_border = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] != in) continue;
    ++all;
    if (border[i]) ++on_border;
  }
  return on_border / all;
}

}  // namespace

ChosenPatches choose_patches(const Look& look) {
  return choose_patches(look.features(), look.grid());
}

ChosenPatches choose_patches(std::span<const float> patches, const infer::Grid& grid) {
  const auto count = static_cast<std::size_t>(grid.patches());
  const std::vector<Vector> all = directions(patches, count);
  const Group border = border_of(grid);
  Vector first = mean_of(all, middle_of(grid)), second = mean_of(all, border);
  const auto score = [&](std::size_t i) { return dot(all[i], first) - dot(all[i], second); };
  Group in_first;
  for (int round = 0; round < kRounds; ++round) {
    Group now(count);
    for (std::size_t i = 0; i < count; ++i) now[i] = score(i) > 0;
    const auto members = static_cast<std::size_t>(std::ranges::count(now, true));
    if (members == 0 || members == count) {  // nothing to tell apart
      return {{grid.rows / 2, grid.cols / 2}, {0, 0}};
    }
    if (now == in_first) break;
    in_first = now;
    first = mean_of(all, in_first);
    second = mean_of(all, in_first, false);
  }
  std::size_t of_first = 0, of_second = 0;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double best_first = -kInfinity, best_second = -kInfinity;
  for (std::size_t i = 0; i < count; ++i) {
    const double own = in_first[i] ? score(i) : -score(i);
    double& best = in_first[i] ? best_first : best_second;
    if (own <= best) continue;
    best = own;
    (in_first[i] ? of_first : of_second) = i;
  }
  const auto place = [&](std::size_t number) {
    const auto whole = static_cast<std::int64_t>(number);
    return Patch{whole / grid.cols, whole % grid.cols};
  };
  const Patch one = place(of_first), other = place(of_second);
  return share_of(in_first, true, border) > share_of(in_first, false, border)
             ? ChosenPatches{other, one}
             : ChosenPatches{one, other};
}

}  // namespace sape2::explain
