#include "sape2/data/normalisation.h"

#include "sape2/base/error.h"

#include <fmt/format.h>

namespace sape2::data {

std::vector<ByteScale> byte_scales(const Normalisation& normalisation, std::int64_t channels) {
  constexpr double kLargestByte = 255;
  const auto count = static_cast<std::size_t>(channels);
  if (normalisation.mean.empty() && normalisation.deviation.empty()) {
    return std::vector<ByteScale>(count, {0, static_cast<float>(1 / kLargestByte)});
  }
  if (normalisation.mean.size() != count || normalisation.deviation.size() != count) {
    throw Error(fmt::format("normalise: {} means and {} deviations for images of {} channels",
                            normalisation.mean.size(), normalisation.deviation.size(), channels));
  }
  std::vector<ByteScale> scales;
  for (std::size_t c = 0; c < count; ++c) {
    const double mean = normalisation.mean[c], deviation = normalisation.deviation[c];
    if (!(deviation > 0)) {
      throw Error(fmt::format("normalise: the deviation of channel {} is {}, expected more than 0",
                              c, deviation));
    }
    scales.push_back({static_cast<float>(kLargestByte * mean),
                      static_cast<float>(1 / (kLargestByte * deviation))});
  }
  return scales;
}

}  // namespace sape2::data
