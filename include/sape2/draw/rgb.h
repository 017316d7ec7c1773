#pragma once

namespace sape2::draw {

struct Rgb {
  double red = 0, green = 0, blue = 0;  ///< 0 … 1
};

}  // namespace sape2::draw
