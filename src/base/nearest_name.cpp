#include "sape2/base/nearest_name.h"

#include "sape2/base/in_quotes.h"

#include <algorithm>
#include <cctype>

namespace sape2 {
namespace {

char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

// Edit distance with swaps of neighbours (optimal string alignment); three rows suffice.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = above;
    above = row;
  }
  return above[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view written, const std::vector<std::string>& valid) {
  std::string nearest;
  size_t smallest = std::string_view::npos;
  for (const std::string& name : valid) {
    // A name so much longer or shorter cannot be near; it also bounds the work on hostile input.
    const size_t allowed = std::max<size_t>(1, std::max(name.size(), written.size()) / 3);
    const size_t longer = std::max(name.size(), written.size());
    if (longer - std::min(name.size(), written.size()) > allowed) continue;
    const size_t distance = edit_distance(written, name);
    if (distance <= allowed && distance < longer && distance < smallest) {
      smallest = distance;
      nearest = name;
    }
  }
  return nearest;
}

std::string name_advice(std::string_view written, const std::vector<std::string>& valid) {
  const std::string nearest = nearest_name(written, valid);
  if (!nearest.empty()) return "the nearest is " + in_quotes(nearest);
  std::string list;
  for (const std::string& name : valid) list += (list.empty() ? "" : ", ") + name;
  return "valid are " + list;
}

}  // namespace sape2
