#pragma once

#include "sape2/serve/server.h"

#include "serve/page_api.h"

#include <string>
#include <string_view>
#include <vector>

namespace sape2::serve {

/// What stands behind the server's addresses under /api; see docs/serve.md.
class Api : public PageApi {
 public:
  Api(const std::vector<ServedModel>& models, const data::Dataset* dataset, std::string split,
      const Limits& limits);
  ~Api() override;

  /// Whether a model's look at the image asked for is more than a moment's work.
  bool takes_long(const Query& query) const;

  /// Keeps an uploaded PNG or JPEG file and names it.
  Answer keep_image(std::string_view bytes);
  /// An image as a PNG.
  Answer picture(const Query& query);
  /// The figure of `sape2 explain`.
  Answer figure(const Query& query);

 protected:
  std::size_t models() const override { return models_.size(); }
  std::string model_name(std::size_t model) const override;
  const nn::ModelConfig& config(std::size_t model) const override;
  std::optional<ImageList> image_list() const override;
  explain::Picture picture_named(const std::string& name) override;
  std::unique_ptr<explain::Look> look_at(std::size_t model, const data::Image& image,
                                         const explain::InputSize& size) override;

 private:
  const std::vector<ServedModel>& models_;
  const data::Dataset* dataset_;
  std::string split_;
  Limits limits_;
  std::vector<std::int64_t> parameters_;  ///< of each model
  LruCache<data::Image> uploads_;
};

}  // namespace sape2::serve
