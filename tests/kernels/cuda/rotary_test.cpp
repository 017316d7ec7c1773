// Rotary positions against loops in float64, without a framework.
#include "sape2/base/error.h"
#include "sape2/kernels/cuda_training.h"

#include "heads_place.h"

namespace sape2::kernels::test {
namespace {

using Angles = cuda::Rotation::Angles;

double angle(const Shape& shape, Angles angles, const Held& fx, const Held& fy, std::int64_t patch,
             std::int64_t head, std::int64_t pair) {
  const std::int64_t pairs = shape.head_size / 2, half = pairs / 2;
  const auto x = double(patch % shape.cols), y = double(patch / shape.cols);
  const auto theta = [](double base, std::int64_t t, std::int64_t count) {
    return std::pow(base, -double(t) / double(count));
  };
  if (angles == Angles::raster) return double(patch) * theta(10000, pair, pairs);
  if (angles == Angles::axial)
    return pair < half ? x * theta(100, pair, half) : y * theta(100, pair - half, half);
  const auto at = static_cast<std::size_t>(head * pairs + pair);
  return x * fx[at] + y * fy[at];
}

class Rotary : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "there is no GPU here";
  }

  static void check(const Shape& shape, Angles angles, bool from_packed, bool to_packed) {
    const DType type = GetParam();
    Random random(11);
    const Place from{shape, from_packed}, to{shape, to_packed};
    const auto frequencies = static_cast<std::size_t>(shape.heads * shape.head_size / 2);
    const Held given(random.normal(std::int64_t(from.size()), 1), type), turned(to.size(), type);
    const Held fx(random.normal(std::int64_t(frequencies), 0.3), DType::float32);
    const Held fy(random.normal(std::int64_t(frequencies), 0.3), DType::float32);
    const cuda::Rotation rotation{angles, fx.floats(), fy.floats()};
    cuda::rotary_forward(
        shape, type, rotation,
        {from.const_view(given, 0, type), from.const_view(given, 1, type),
         from.const_view(given, 2, type)},
        {to.view(turned, 0, type), to.view(turned, 1, type), to.view(turned, 2, type)}, nullptr);
    const Numbers after = turned.read();
    const Held gradients(random.normal(std::int64_t(to.size()), 1), type);
    const Held dfx(frequencies, DType::float32), dfy(frequencies, DType::float32);
    const bool mixed = angles == Angles::mixed;
    const DeviceBytes workspace(cuda::rotary_workspace(shape));
    cuda::rotary_backward(shape, type, rotation,
                          {to.view(gradients, 0, type), to.view(gradients, 1, type),
                           to.const_view(turned, 0, type), to.const_view(turned, 1, type),
                           mixed ? dfx.floats() : nullptr, mixed ? dfy.floats() : nullptr},
                          workspace.data(), nullptr);

    Numbers wanted(to.size()), dwanted(to.size()), dfxs(frequencies), dfys(frequencies);
    for (std::size_t i = 0; i < to.size(); ++i) dwanted[i] = gradients[i];
    const auto each = [&](auto visit) {
      for (std::int64_t image = 0; image < shape.images; ++image)
        for (std::int64_t head = 0; head < shape.heads; ++head)
          for (std::int64_t token = 0; token < shape.tokens(); ++token)
            for (int tensor = 0; tensor < 3; ++tensor) visit(tensor, image, head, token);
    };
    each([&](int tensor, std::int64_t image, std::int64_t head, std::int64_t token) {
      const std::size_t in = from.at(tensor, image, head, token);
      const std::size_t out = to.at(tensor, image, head, token);
      const std::int64_t patch = token - shape.prefix;
      for (std::int64_t pair = 0; pair < shape.head_size / 2; ++pair) {
        const auto c = static_cast<std::size_t>(2 * pair);
        const bool turns = tensor < 2 && patch >= 0;
        const double phi = turns ? angle(shape, angles, fx, fy, patch, head, pair) : 0;
        const double cosine = std::cos(phi), sine = std::sin(phi);
        const double a = given[in + c], b = given[in + c + 1];
        const double da = gradients[out + c], db = gradients[out + c + 1];
        wanted[out + c] = a * cosine - b * sine;
        wanted[out + c + 1] = a * sine + b * cosine;
        dwanted[out + c] = da * cosine + db * sine;
        dwanted[out + c + 1] = db * cosine - da * sine;
        if (!turns) continue;
        const double dphi = db * after[out + c] - da * after[out + c + 1];
        const auto f = static_cast<std::size_t>(head * shape.head_size / 2 + pair);
        dfxs[f] += dphi * double(patch % shape.cols);
        dfys[f] += dphi * double(patch / shape.cols);
      }
    });
    expect_near(turned, wanted, type, "turned");
    expect_near(gradients, dwanted, type, "turned back");
    // What does not turn is copied to the bit, and its gradient is left alone.
    const Numbers back = gradients.read();
    each([&](int tensor, std::int64_t image, std::int64_t head, std::int64_t token) {
      if (tensor < 2 && token >= shape.prefix) return;
      for (std::int64_t c = 0; c < shape.head_size; ++c) {
        const auto in = from.at(tensor, image, head, token) + static_cast<std::size_t>(c);
        const auto out = to.at(tensor, image, head, token) + static_cast<std::size_t>(c);
        ASSERT_EQ(after[out], given[in]);
        ASSERT_EQ(back[out], gradients[out]);
      }
    });
    if (!mixed) return;
    expect_near(dfx, dfxs, DType::float32, "dfx");
    expect_near(dfy, dfys, DType::float32, "dfy");
  }
};

TEST_P(Rotary, FollowsTheFormula) {
  const Shape shapes[] = {{1, 1, 1, 1, 0, 4},  {3, 2, 3, 5, 1, 12},   {35, 2, 8, 8, 0, 64},
                          {2, 3, 1, 70, 5, 8}, {5, 4, 16, 9, 2, 128}, {600, 2, 2, 3, 0, 32}};
  for (const Shape& shape : shapes)
    for (const Angles angles : {Angles::raster, Angles::axial, Angles::mixed})
      for (const bool packed : {false, true})
        check(shape, angles, packed, shape.images > 1 || packed);
}

TEST_P(Rotary, RefusesWhatItCannotTurn) {
  const Shape odd{1, 1, 2, 2, 0, 6}, even{1, 1, 2, 2, 0, 8};
  const cuda::Rotation raster, mixed{Angles::mixed, nullptr, nullptr};
  EXPECT_THROW(cuda::rotary_forward(odd, GetParam(), raster, {}, {}, nullptr), Error);
  EXPECT_THROW(cuda::rotary_forward(even, GetParam(), mixed, {}, {}, nullptr), Error);
}

INSTANTIATE_TEST_SUITE_P(Types, Rotary, testing::ValuesIn(kTypes));

}  // namespace
}  // namespace sape2::kernels::test
