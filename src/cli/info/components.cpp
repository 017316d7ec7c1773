#include "cli/info/components.h"

#include "sape2/components.h"

namespace sape2::cli {

std::string Component::advice() const {
  return "install " + packages + " and build again";
}

const std::vector<Component>& components() {
  static const std::vector<Component> all = {
      {"drawing", "figures (Cairo)", SAPE2_HAVE_DRAWING == 1, "libcairo2-dev"},
      {"download", "data sets from the net (libcurl)", SAPE2_HAVE_DOWNLOAD == 1,
       "libcurl4-openssl-dev"},
      {"images", "PNG and JPEG decoding (libpng, libjpeg-turbo)", SAPE2_HAVE_IMAGES == 1,
       "libpng-dev libjpeg62-turbo-dev"},
      {"server", "the local page (cpp-httplib)", SAPE2_HAVE_SERVER == 1, "libcpp-httplib-dev"},
      {"explorer", "the page without a server (emscripten)", SAPE2_HAVE_EXPLORER == 1,
       "emscripten"},
  };
  return all;
}

}  // namespace sape2::cli
