#pragma once

#include "sape2/base/error.h"
#include "sape2/serve/server.h"

#include "serve/answer.h"
#include "serve/lru_cache.h"

#include <map>
#include <string>
#include <string_view>

namespace sape2::serve {

/// Something that is asked for does not exist.
class NotFound : public Error {
 public:
  using Error::Error;
};

/// The values of a request's query by name.
using Query = std::multimap<std::string, std::string>;

/// What stands behind the addresses under /api; see docs/serve.md. For any number of threads.
/// A client's mistake is thrown as Error, something that is not there as NotFound.
class Api {
 public:
  Api(const std::vector<ServedModel>& models, const data::Dataset* dataset, std::string split,
      const Limits& limits);
  ~Api();

  /// Whether a model's look at the image asked for is more than a moment's work.
  bool takes_long(const Query& query) const;

  /// Models, data set, limits and colour scales: what the page begins with.
  Answer setup();
  /// Keeps an uploaded PNG or JPEG file and names it.
  Answer keep_image(std::string_view bytes);
  /// An image as a PNG.
  Answer picture(const Query& query);
  /// A model has looked at an image: its grid, what it offers, and what it sees.
  Answer inspect(const Query& query);
  /// From one patch to all.
  Answer rows(const Query& query);
  /// The figure of `sape2 explain`.
  Answer figure(const Query& query);

 private:
  struct Shown;
  struct Looked;

  explain::Picture picture_named(const std::string& name);
  std::size_t model_index(const std::string& text) const;
  std::shared_ptr<Looked> look(const Query& query, std::size_t model);
  const Shown& show(Looked& looked, explain::What what, const explain::Selection& selection);

  const std::vector<ServedModel>& models_;
  const data::Dataset* dataset_;
  std::string split_;
  Limits limits_;
  std::vector<std::int64_t> parameters_;  ///< of each model
  LruCache<data::Image> uploads_;
  LruCache<Looked> looked_;
};

}  // namespace sape2::serve
