// The page's questions answered in the page's own browser, by the runtime without LibTorch compiled
// to WebAssembly. page/worker.js calls these functions; texts are UTF-8, and a returned one is
// valid until the next call. A mistake is an answer {"error": "one sentence"}.
#include "sape2/data/image.h"
#include "sape2/explain/runtime_look.h"
#include "sape2/infer/model.h"
#include "sape2/infer/session.h"

#include "serve/answer.h"
#include "serve/page_api.h"

#include <emscripten/emscripten.h>
#include <nlohmann/json.hpp>

#include <map>
#include <new>
#include <span>
#include <string>
#include <vector>

namespace sape2::explorer {
namespace {

// The browser's memory is the visitor's own: less of it than on a server, but one file may be
// large.
constexpr serve::PageLimits kLimits{.body_bytes = std::size_t{64} << 20,
                                    .inspection_memory = std::size_t{128} << 20,
                                    .patches = 64 * 64};

class Explorer : public serve::PageApi {
 public:
  Explorer() : PageApi(kLimits) {}

  std::size_t add_model(std::span<const std::byte> file, const std::string& name) {
    sessions_.emplace_back(infer::Model::from_memory(file, name),
                           infer::SessionOptions{.threads = 1});
    names_.push_back(name);
    return names_.size() - 1;
  }

  void add_picture(const std::string& key, explain::Picture picture) {
    pictures_.insert_or_assign(key, std::move(picture));
  }

  void set_image_list(serve::ImageList list) { list_ = std::move(list); }

 protected:
  std::size_t models() const override { return names_.size(); }
  std::string model_name(std::size_t model) const override { return names_[model]; }
  const nn::ModelConfig& config(std::size_t model) const override {
    return sessions_[model].model().config();
  }
  std::optional<serve::ImageList> image_list() const override { return list_; }

  explain::Picture picture_named(const std::string& name) override {
    const auto found = pictures_.find(name);
    if (found == pictures_.end()) {
      throw serve::NotFound("the image is not kept after the page is closed; drop it again");
    }
    return found->second;
  }

  std::unique_ptr<explain::Look> look_at(std::size_t model, const data::Image& image,
                                         const explain::InputSize& size) override {
    return std::make_unique<explain::RuntimeLook>(sessions_[model], image, size, kLimits.patches);
  }

 private:
  std::vector<infer::Session> sessions_;
  std::vector<std::string> names_;
  std::map<std::string, explain::Picture> pictures_;
  std::optional<serve::ImageList> list_;
};

Explorer& explorer() {
  static Explorer one;
  return one;
}

// A browser's pixels, four bytes each, as the decoders of files give them: laid over white.
data::Image without_alpha(const std::uint8_t* rgba, std::int64_t height, std::int64_t width) {
  data::Image image{.height = height, .width = width, .channels = 4, .pixels = {}};
  image.pixels.assign(rgba, rgba + 4 * height * width);
  data::lay_over_white(image);
  return image;
}

// What `work` answers, or its mistake.
template <typename Work>
const char* answered(const Work& work) {
  static std::string body;
  try {
    body = work();
  } catch (const Error& error) {
    body = serve::error_body(error.what());
  } catch (const std::bad_alloc&) {
    body = serve::error_body("there is not enough memory in this browser for that");
  }
  return body.c_str();
}

}  // namespace
}  // namespace sape2::explorer

using namespace sape2;  // NOLINT: nothing follows but the interface

extern "C" {

EMSCRIPTEN_KEEPALIVE const char* sape2_add_model(const std::byte* file, std::size_t size,
                                                 const char* name) {
  return explorer::answered([&] {
    const std::size_t index = explorer::explorer().add_model({file, size}, name);
    return nlohmann::json{{"model", index}}.dump();
  });
}

EMSCRIPTEN_KEEPALIVE const char* sape2_add_image(const char* key, const char* name,
                                                 const char* label, const std::uint8_t* rgba,
                                                 int height, int width) {
  return explorer::answered([&] {
    data::Image image = serve::kept_size(explorer::without_alpha(rgba, height, width));
    explorer::explorer().add_picture(key, {name, std::move(image), label});
    return nlohmann::json{{"image", key}}.dump();
  });
}

EMSCRIPTEN_KEEPALIVE const char* sape2_set_images(const char* name, const char* split, int count) {
  return explorer::answered([&] {
    explorer::explorer().set_image_list({name, split, count});
    return std::string("{}");
  });
}

/// `/api/setup`, `/api/inspect`, `/api/rows`, `/api/mask` or `/api/pixel`, and what stands behind
/// the question mark.
EMSCRIPTEN_KEEPALIVE const char* sape2_ask(const char* path, const char* query) {
  return explorer::answered([&]() -> std::string {
    const std::string asked = path;
    if (asked == "/api/setup") return explorer::explorer().setup().body;
    if (asked == "/api/inspect")
      return explorer::explorer().inspect(serve::parse_query(query)).body;
    if (asked == "/api/rows") return explorer::explorer().rows(serve::parse_query(query)).body;
    if (asked == "/api/mask") return explorer::explorer().mask(serve::parse_query(query)).body;
    if (asked == "/api/pixel") return explorer::explorer().pixel(serve::parse_query(query)).body;
    throw serve::NotFound("there is nothing at this address");
  });
}

}  // extern "C"
