#include "sape2/study/probes.h"
#include "sape2/train/evaluate.h"

#include "study/small_models.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sape2::study {
namespace {

ProbeResult probe(nn::ViT& model, std::int64_t images = 61) {
  return run_probe("gates", model, {.data = {.name = "shapes"}, .images = images});
}

std::vector<double> column(const ProbeResult& result, std::size_t index) {
  std::vector<double> values;
  for (const ProbeRow& row : result.tables.at(0).rows) values.push_back(row.values.at(index));
  return values;
}

constexpr std::size_t kTop1 = 0, kLoss = 1, kDifference = 2, kFrom = 3, kTo = 4, kSame = 5;

// What goes through exchanged gates is the model that attends by itself.
TEST(GatesProbe, OwnGatesGiveTheModelsOwnAnswers) {
  for (const char* encoding : {"sape2-rel-k", "sape2-k+ape", "sape2-rel-qk", "sape2-q"}) {
    SCOPED_TRACE(encoding);
    const auto model = test::small_model(encoding);
    const ProbeResult result = probe(*model);
    auto shapes = data::load_dataset("shapes", data::Split::test);
    shapes.images = shapes.images.narrow(0, 0, 61);
    shapes.labels = shapes.labels.narrow(0, 0, 61);
    const auto expected = train::evaluate(*model, shapes);
    EXPECT_NEAR(column(result, kTop1)[0], 100 * expected.top1, 1e-9);
    EXPECT_NEAR(column(result, kLoss)[0], expected.loss, 1e-4);
    EXPECT_EQ(column(result, kSame)[0], 100);
    EXPECT_TRUE(std::isnan(column(result, kDifference)[0]));
  }
}

TEST(GatesProbe, OpenGatesAreTheSameOnEveryImage) {
  const auto model = test::small_model("sape2-rel-k[gates=open]");
  const ProbeResult result = probe(*model);
  for (const std::size_t index : {kTop1, kLoss, kSame}) {
    const auto values = column(result, index);
    EXPECT_EQ(values[0], values[1]) << index;
    EXPECT_EQ(values[0], values[2]) << index;
  }
  EXPECT_EQ(column(result, kDifference)[1], 0);
  EXPECT_NE(result.reading.find("not distinguishable"), std::string::npos) << result.reading;
  EXPECT_NE(result.reading.find("does not show that"), std::string::npos) << result.reading;
}

// The small model's parameters are drawn wide: gates of another image change its loss.
TEST(GatesProbe, GatesThatLookAtTheImageMatter) {
  const auto model = test::small_model("sape2-rel-k");
  const ProbeResult result = probe(*model);
  const auto loss = column(result, kLoss);
  EXPECT_NE(loss[0], loss[1]);
  EXPECT_NE(loss[0], loss[2]);
  EXPECT_NE(loss[1], loss[2]);
  for (const std::size_t row : {1u, 2u}) {
    EXPECT_LE(column(result, kFrom)[row], column(result, kDifference)[row] + 1e-9);
    EXPECT_GE(column(result, kTo)[row], column(result, kDifference)[row] - 1e-9);
  }
  EXPECT_EQ(probe(*model).reading, result.reading) << "the exchange is fixed";
}

// Two sums of a batch of one image too few: 51 images are 49 and 2, or 51 at once.
TEST(GatesProbe, NoImageIsLeftAlone) {
  const auto model = test::small_model("sape2-rel-k");
  for (const std::int64_t images : {2, 50, 51, 52}) {
    const ProbeResult result = probe(*model, images);
    ASSERT_EQ(result.tables.size(), 1u) << images;
    EXPECT_NE(result.tables[0].title.find(std::to_string(images)), std::string::npos);
  }
  EXPECT_TRUE(probe(*model, 1).reading.starts_with("Left out")) << "one image has no other";
}

TEST(GatesProbe, AnEncodingWithoutGatesIsLeftOut) {
  for (const char* encoding : {"ape", "rope2d", "cope", "rpe-decomposed"}) {
    const auto model = test::small_model(encoding);
    const ProbeResult result = probe(*model);
    EXPECT_TRUE(result.tables.empty()) << encoding;
    EXPECT_TRUE(result.reading.starts_with("Left out")) << result.reading;
  }
}

// With one image for all, every kind of gates is the image's own.
TEST(GatesProbe, OnEqualImagesAllGatesAreEqual) {
  const auto model = test::small_model("sape2-rel-k");
  const at::NoGradGuard no_grad;
  const auto shapes = data::make_shapes({.split = data::Split::test, .count = 1});
  const at::Tensor one = train::normalised_images(*model, shapes.dataset.images);
  const at::Tensor images = one.expand({4, -1, -1, -1}).contiguous();
  std::vector<ops::Gates> gates;
  const at::Tensor own = model->forward_with_gates(images, [&](const ops::Gates& layer) {
    gates.push_back(layer);
    return layer;
  });
  std::size_t layer = 0;
  const at::Tensor mean = model->forward_with_gates(images, [&](const ops::Gates&) {
    const ops::Gates& all = gates.at(layer++);
    return ops::Gates{all.x.mean(0, true), all.y.mean(0, true)};
  });
  EXPECT_EQ(gates.size(), 2u) << "one for each layer";
  EXPECT_TRUE(at::allclose(own, mean, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(own, model->forward(images), 1e-4, 1e-5));
}

}  // namespace
}  // namespace sape2::study
