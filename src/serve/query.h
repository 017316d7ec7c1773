#pragma once

#include "sape2/base/error.h"
#include "sape2/explain/view.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace sape2::serve {

/// Something that is asked for does not exist.
class NotFound : public Error {
 public:
  using Error::Error;
};

/// The values of a request's query by name. What is missing or makes no sense is an Error.
using Query = std::multimap<std::string, std::string>;

/// The value of a name, or null.
const std::string* value_of(const Query& query, const std::string& name);
std::string required(const Query& query, const std::string& name);
std::int64_t whole_number(const std::string& name, std::string_view text, std::int64_t least,
                          std::int64_t most);

explain::Selection selection_of(const Query& query);
explain::What what_of(const Query& query);
explain::Patch patch_of(const Query& query);
/// Of the image's shorter side; 0: as the model was trained.
std::int64_t size_of(const Query& query);

/// `a=1&b=%20`, as it stands in an address.
Query parse_query(std::string_view text);

}  // namespace sape2::serve
