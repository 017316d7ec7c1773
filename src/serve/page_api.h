#pragma once

#include "sape2/explain/input.h"
#include "sape2/explain/look.h"
#include "sape2/nn/model_config.h"

#include "serve/answer.h"
#include "serve/lru_cache.h"
#include "serve/query.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace sape2::serve {

/// Images that can be picked.
struct ImageList {
  std::string name;
  std::string split;
  std::int64_t images = 0;
};

struct PageLimits {
  std::size_t body_bytes = 0;         ///< of an image file
  std::size_t inspection_memory = 0;  ///< kept looks; the oldest go first
  std::int64_t patches = 0;           ///< of one image
};

/// The size of an image, made smaller if it is too large to be kept.
nn::Size2d kept_size(nn::Size2d size);
/// An image that somebody gave, in that size.
data::Image kept_size(data::Image image);

/// What the page asks for, whoever computes it and however questions get here: over HTTP from a
/// server, or from WebAssembly in the page's own browser (docs/serve.md has the answers). For any
/// number of threads. A client's mistake is thrown as Error, something that is not there as
/// NotFound.
class PageApi {
 public:
  explicit PageApi(const PageLimits& limits);
  virtual ~PageApi();
  PageApi(const PageApi&) = delete;
  PageApi& operator=(const PageApi&) = delete;

  /// Models, images to pick, limits and colour scales: what the page begins with.
  Answer setup();
  /// A model has looked at an image: its grid, what it offers, and what it sees.
  Answer inspect(const Query& query);
  /// From one patch to all.
  Answer rows(const Query& query);
  /// The class of every pixel, of a model for segmentation.
  Answer mask(const Query& query);
  /// The classes of one pixel of that mask with their probabilities.
  Answer pixel(const Query& query);

 protected:
  struct Looked;

  virtual std::size_t models() const = 0;
  virtual std::string model_name(std::size_t model) const = 0;
  virtual const nn::ModelConfig& config(std::size_t model) const = 0;
  virtual std::optional<ImageList> image_list() const = 0;
  /// Throws NotFound where there is no such image.
  virtual explain::Picture picture_named(const std::string& name) = 0;
  virtual std::unique_ptr<explain::Look> look_at(std::size_t model, const data::Image& image,
                                                 const explain::InputSize& size) = 0;

  std::size_t model_index(const std::string& text) const;
  /// The look at the image that is asked for, through one of the models.
  std::shared_ptr<Looked> looked(const Query& query, std::size_t model);
  static const explain::Look& look_of(const Looked& looked);

 private:
  struct Shown;

  static const Shown& show(Looked& looked, explain::What what, const explain::Selection& selection);

  PageLimits limits_;
  LruCache<Looked> looked_;
};

}  // namespace sape2::serve
