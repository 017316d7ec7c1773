#pragma once

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

/// Lists of entries with names.
namespace sape2::nn {

/// The list that several files make, each with a function that returns its part.
template <typename Entry>
std::vector<Entry> joined(std::initializer_list<std::vector<Entry> (*)()> parts) {
  std::vector<Entry> all;
  for (const auto part : parts) std::ranges::move(part(), std::back_inserter(all));
  return all;
}

/// The entry of that name, or nullptr.
template <typename Entry>
const Entry* find_named(const std::vector<Entry>& all, std::string_view name) {
  const auto found = std::ranges::find(all, name, &Entry::name);
  return found == all.end() ? nullptr : &*found;
}

/// The entry of a name that a user gave; `what` it names begins the sentence about a wrong one.
template <typename Entry>
const Entry& named(const std::vector<Entry>& all, std::string_view name, const std::string& what) {
  if (const Entry* found = find_named(all, name)) return *found;
  std::vector<std::string> names;
  for (const Entry& entry : all) names.emplace_back(entry.name);
  throw Error(what + " " + in_quotes(name) + " is not known; " + name_advice(name, names));
}

}  // namespace sape2::nn
