#include "sape2/data/mask.h"
#include "sape2/explain/inspection.h"
#include "sape2/explain/picture.h"
#include "sape2/study/prediction.h"

#include "serve/served.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

namespace sape2::serve::test {
namespace {

using Json = nlohmann::json;

constexpr const char* kMasks = "segmentation";

// A model whose head is no zero, so that classes differ.
ServedModel segmenter() {
  ServedModel served = small_model("sape2-k+ape", kMasks);
  const at::NoGradGuard no_grad;
  at::manual_seed(4);
  served.model->named_parameters()["head.weight"].normal_(0, 1);
  return served;
}

std::vector<std::uint8_t> pixels_of(const Json& mask) {
  std::vector<std::uint8_t> pixels;
  const Json& runs = mask["runs"];
  for (std::size_t i = 0; i < runs.size(); i += 2) {
    pixels.insert(pixels.end(), runs[i + 1].get<std::size_t>(), runs[i].get<std::uint8_t>());
  }
  return pixels;
}

TEST(Masks, AreThoseOfPredict) {
  const ServedModel model = segmenter();
  const Served served({}, {model});
  EXPECT_EQ(get(served.port(), "/api/setup").json()["models"][0]["task"], kMasks);
  const Json seen = get(served.port(), "/api/inspect?model=0&image=data:3").json();
  EXPECT_EQ(seen["mask"], (Json{{"height", 32}, {"width", 32}}));
  EXPECT_TRUE(seen["predictions"].empty());
  EXPECT_EQ(seen["offers"]["bias"], true);
  const Json mask = get(served.port(), "/api/mask?model=0&image=data:3").json();
  const auto dataset = data::make_shapes({.split = data::Split::test, .count = 20}).dataset;
  const data::Image image = explain::picture_of(dataset, "test", 3).image;
  const study::MaskPrediction expected = study::predict_mask(*model.model, image);
  EXPECT_EQ(mask["height"], 32);
  EXPECT_EQ(pixels_of(mask), expected.mask.pixels);
  ASSERT_EQ(mask["classes"].size(), 10U);
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(mask["classes"][i]["class"], "class " + std::to_string(i));
    EXPECT_EQ(mask["classes"][i]["colour"], Json(data::mask_colour(static_cast<int>(i))));
    EXPECT_NEAR(mask["classes"][i]["share"].get<double>(), expected.shares[i], 1e-9);
  }
}

TEST(Masks, APixelHasItsClassesWithProbabilities) {
  const ServedModel model = segmenter();
  const Served served({}, {model});
  const auto pixels = pixels_of(get(served.port(), "/api/mask?model=0&image=data:0").json());
  const auto dataset = data::make_shapes({.split = data::Split::test, .count = 20}).dataset;
  const explain::Inspection seen(model.model, explain::picture_of(dataset, "test", 0).image);
  for (const auto& [y, x] : {std::pair{0, 0}, {13, 30}, {31, 31}}) {
    const Json pixel = get(served.port(), "/api/pixel?model=0&image=data:0&y=" + std::to_string(y) +
                                              "&x=" + std::to_string(x))
                           .json();
    const auto expected = infer::ranked(seen.config(), seen.pixel_logits()->at({32, 32}, y, x));
    ASSERT_EQ(pixel["predictions"].size(), 5U);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(pixel["predictions"][i]["index"], expected[i].index);
      EXPECT_NEAR(pixel["predictions"][i]["probability"].get<double>(), expected[i].probability,
                  1e-9);
    }
    EXPECT_EQ(pixel["predictions"][0]["index"], pixels[static_cast<std::size_t>(32 * y + x)]);
  }
}

TEST(Masks, OfAnUploadHaveItsSizeOnceItIsKept) {
  const Served served({}, {segmenter()});
  const std::string name =
      post(served.port(), "/api/images", png_file(40, 1500)).json()["image"].get<std::string>();
  const Json seen = get(served.port(), "/api/inspect?model=0&image=" + name).json();
  EXPECT_EQ(seen["mask"], (Json{{"height", 27}, {"width", 1024}}));
  const Json mask = get(served.port(), "/api/mask?model=0&image=" + name).json();
  EXPECT_EQ(pixels_of(mask).size(), 27U * 1024);
  const Reply figure = get(served.port(), "/api/figure?model=0&what=bias&image=data:1");
  EXPECT_EQ(figure.status, 200) << figure.body;
}

TEST(Masks, MistakesAreOneSentence) {
  const Served served({}, {segmenter(), small_model("rope2d")});
  EXPECT_TRUE(get(served.port(), "/api/inspect?model=1&image=data:0").json()["mask"].is_null());
  for (const char* path :
       {"/api/mask?model=1&image=data:0", "/api/pixel?model=1&image=data:0&y=0&x=0"}) {
    const Reply classifier = get(served.port(), path);
    EXPECT_EQ(classifier.status, 400);
    EXPECT_NE(classifier.error().find("task is classification"), std::string::npos);
  }
  const Reply outside = get(served.port(), "/api/pixel?model=0&image=data:0&y=32&x=0");
  EXPECT_EQ(outside.status, 400);
  EXPECT_NE(outside.error().find("there is no pixel 32,0"), std::string::npos);
  EXPECT_EQ(get(served.port(), "/api/pixel?model=0&image=data:0&y=1").status, 400);
  EXPECT_EQ(get(served.port(), "/api/mask?model=0&image=none").status, 404);
}

TEST(Masks, OfNumbersThatAreNotFiniteAreRefused) {
  const ServedModel model = segmenter();
  {
    const at::NoGradGuard no_grad;
    model.model->named_parameters()["head.bias"].fill_(std::numeric_limits<float>::quiet_NaN());
  }
  const Served served({}, {model});
  for (const char* path : {"/api/inspect?model=0&image=data:0", "/api/mask?model=0&image=data:0"}) {
    const Reply reply = get(served.port(), path);
    EXPECT_EQ(reply.status, 400);
    EXPECT_NE(reply.error().find("not a finite number"), std::string::npos) << reply.body;
  }
}

}  // namespace
}  // namespace sape2::serve::test
