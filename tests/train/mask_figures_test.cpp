#include "sape2/train/mask_figures.h"

#include "sape2/train/segmentation.h"
#include "sape2/train/task.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sape2::train {
namespace {

constexpr int kNo = 255;  // not counted

at::Tensor mask(const std::vector<std::vector<int>>& rows) {
  std::vector<at::Tensor> lines;
  for (const auto& row : rows) lines.push_back(at::tensor(row, at::kByte));
  return at::stack(lines).unsqueeze(0);
}

// A square mask of zeros with a box of ones: rows and columns [begin, end).
at::Tensor box(int64_t side, int64_t top, int64_t bottom, int64_t left, int64_t right) {
  at::Tensor result = at::zeros({1, side, side}, at::kByte);
  result.narrow(1, top, bottom - top).narrow(2, left, right - left).fill_(1);
  return result;
}

MaskCounts counted(const at::Tensor& predicted, const at::Tensor& truth, int64_t classes = 2) {
  MaskCounts counts(classes, at::kCPU);
  counts.add(predicted.to(at::kLong), truth);
  return counts;
}

double boundary_f1(const at::Tensor& predicted, const at::Tensor& truth) {
  return figure_of(counted(predicted, truth).figures(), "boundary_f1");
}

TEST(MaskFigures, AreThoseOfAHandMadeCase) {
  const at::Tensor truth = mask({{0, 0, 1, 1}, {0, kNo, 1, 2}});
  const at::Tensor predicted = mask({{0, 1, 1, 1}, {0, 2, 0, 2}});
  const MaskCounts counts = counted(predicted, truth, 3);
  // Of class 0 two are right, one is taken for 1; of class 1 two are right, one is taken for 0.
  EXPECT_TRUE(
      counts.confusion().equal(at::tensor({2, 1, 0, 1, 2, 0, 0, 0, 1}, at::kLong).view({3, 3})));
  const auto ious = class_ious(counts.confusion());
  EXPECT_DOUBLE_EQ(ious[0], 2.0 / 4);
  EXPECT_DOUBLE_EQ(ious[1], 2.0 / 4);
  EXPECT_DOUBLE_EQ(ious[2], 1);
  EXPECT_DOUBLE_EQ(figure_of(counts.figures(), "mean_iou"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(figure_of(counts.figures(), "pixel_accuracy"), 5.0 / 7);
  EXPECT_EQ(counts.figures().front().key, "mean_iou");
}

TEST(MaskFigures, CountPixelsOfAllImagesTogether) {
  MaskCounts counts(2, at::kCPU);
  counts.add(at::zeros({1, 4, 4}, at::kLong), box(4, 0, 1, 0, 1));
  counts.add(box(4, 0, 4, 0, 4).to(at::kLong), box(4, 0, 4, 0, 4));
  // 1 of 17 true pixels of class 1 is missed; it is the only mistake.
  EXPECT_DOUBLE_EQ(class_ious(counts.confusion())[1], 16.0 / 17);
  EXPECT_DOUBLE_EQ(class_ious(counts.confusion())[0], 15.0 / 16);
}

TEST(MaskFigures, AllBackgroundIsPerfectWhereNothingElseIs) {
  const at::Tensor empty = at::zeros({2, 8, 8}, at::kByte);
  const Figures figures = counted(empty, empty).figures();
  // The class that is neither there nor predicted has no IoU.
  EXPECT_TRUE(std::isnan(class_ious(counted(empty, empty).confusion())[1]));
  for (const Figure& figure : figures) EXPECT_EQ(figure.value, 1) << figure.key;
}

TEST(MaskFigures, AnEmptyPredictionFindsNothing) {
  const at::Tensor truth = box(8, 2, 6, 2, 6), empty = at::zeros({1, 8, 8}, at::kByte);
  const MaskCounts counts = counted(empty, truth);
  EXPECT_DOUBLE_EQ(class_ious(counts.confusion())[0], 48.0 / 64);
  EXPECT_EQ(class_ious(counts.confusion())[1], 0);
  EXPECT_DOUBLE_EQ(figure_of(counts.figures(), "pixel_accuracy"), 48.0 / 64);
  EXPECT_EQ(boundary_f1(empty, truth), 0);
  EXPECT_EQ(boundary_f1(truth, empty), 0);  // and a thing where nothing is
}

TEST(MaskFigures, AMaskWithoutACountedPixelSaysNothing) {
  const at::Tensor none = at::full({1, 4, 4}, kNo, at::kByte);
  const MaskCounts counts = counted(at::zeros({1, 4, 4}, at::kByte), none);
  EXPECT_EQ(counts.confusion().sum().item<int64_t>(), 0);
  EXPECT_EQ(figure_of(counts.figures(), "mean_iou"), 0);
  EXPECT_TRUE(filled_masks(none).equal(none));
}

TEST(Boundary, ToleranceGrowsWithTheImage) {
  EXPECT_EQ(boundary_tolerance(32, 32), 1);    // 0.34
  EXPECT_EQ(boundary_tolerance(128, 128), 1);  // 1.36
  EXPECT_EQ(boundary_tolerance(300, 400), 4);  // 3.75
}

TEST(Boundary, IsTheInnerRimAndNotTheEdgeOfTheImage) {
  const at::Tensor rim = boundary_of(box(6, 0, 4, 0, 4), 1)[0];
  // A box in the corner of the image has a boundary on two of its sides alone.
  EXPECT_EQ(rim.sum().item<int64_t>(), 7);
  EXPECT_TRUE(rim[3][0].item<bool>());
  EXPECT_TRUE(rim[0][3].item<bool>());
  EXPECT_FALSE(rim[0][0].item<bool>());
  EXPECT_EQ(boundary_of(box(6, 0, 6, 0, 6), 1).sum().item<int64_t>(), 0);
}

TEST(Boundary, WithinTheToleranceItIsMet) {
  const at::Tensor truth = box(16, 0, 8, 0, 16);
  EXPECT_DOUBLE_EQ(boundary_f1(truth, truth), 1);
  EXPECT_DOUBLE_EQ(boundary_f1(box(16, 0, 9, 0, 16), truth), 1);
  EXPECT_DOUBLE_EQ(boundary_f1(box(16, 0, 10, 0, 16), truth), 0);
}

TEST(Boundary, F1IsThatOfAHandMadeCase) {
  const at::Tensor truth = box(16, 0, 8, 0, 16);
  at::Tensor predicted = truth.clone();
  predicted[0][13][8] = 1;
  // Class 1: 16 true pixels all met; of 17 predicted ones 16 are. Class 0: of 20, 16 are.
  const double object = 2 * (16.0 / 17) / (1 + 16.0 / 17);
  const double background = 2 * (16.0 / 20) / (1 + 16.0 / 20);
  EXPECT_DOUBLE_EQ(boundary_f1(predicted, truth), (object + background) / 2);
}

// Border pixels belong to nobody: the boundary runs through their middle.
TEST(Boundary, RunsThroughTheMiddleOfABorder) {
  EXPECT_TRUE(filled_masks(mask({{0, kNo, kNo, kNo, 1}})).equal(mask({{0, 0, 0, 1, 1}})));
  EXPECT_TRUE(filled_masks(mask({{kNo, kNo}, {kNo, 1}})).equal(mask({{1, 1}, {1, 1}})));
  at::Tensor truth = box(16, 0, 8, 0, 16);
  truth.narrow(1, 6, 4).fill_(kNo);  // rows 6 to 9
  EXPECT_TRUE(filled_masks(truth).equal(box(16, 0, 8, 0, 16)));
  EXPECT_DOUBLE_EQ(boundary_f1(box(16, 0, 8, 0, 16), truth), 1);
  EXPECT_DOUBLE_EQ(boundary_f1(box(16, 0, 12, 0, 16), truth), 0);
  // The border itself is not counted as pixels.
  EXPECT_EQ(counted(box(16, 0, 8, 0, 16), truth).confusion().sum().item<int64_t>(), 12 * 16);
}

TEST(PixelLoss, IsTheSumOverCountedPixels) {
  // Two pixels count: probabilities of the true class are 1/4 and 1/2.
  const double log3 = std::log(3.0);
  const at::Tensor logits =
      at::tensor({log3, 0.0, 7.0, 0.0, 0.0, -7.0}, at::kFloat).view({1, 2, 1, 3});
  const at::Tensor truth = mask({{1, 0, kNo}});
  EXPECT_NEAR(pixel_cross_entropy(logits, truth).item<double>(), std::log(4.0) + std::log(2.0),
              1e-6);
  EXPECT_EQ(counted_pixels(truth).item<int64_t>(), 2);
  // With smoothing, a tenth of each target is spread over both classes.
  const double smooth =
      0.9 * std::log(4.0) + 0.05 * (std::log(4.0) + std::log(4.0 / 3)) + std::log(2.0);
  EXPECT_NEAR(pixel_cross_entropy(logits, truth, 0.1).item<double>(), smooth, 1e-6);
}

TEST(PixelLoss, PixelsThatAreNotCountedHaveNoGradient) {
  const at::Tensor logits = at::randn({1, 3, 2, 2}).requires_grad_();
  pixel_cross_entropy(logits, mask({{kNo, 1}, {2, 0}})).backward();
  EXPECT_EQ(logits.grad().select(2, 0).select(2, 0).abs().max().item<double>(), 0);
  EXPECT_GT(logits.grad().select(2, 1).abs().max().item<double>(), 0);
}

TEST(PixelLoss, NothingCountedIsNoLoss) {
  const at::Tensor logits = at::randn({1, 2, 2, 2}).requires_grad_();
  const at::Tensor none = at::full({1, 2, 2}, kNo, at::kByte);
  const Task& task = task_named("segmentation");
  const at::Tensor counted = task.counted(none);
  EXPECT_EQ(counted.item<int64_t>(), 0);
  const at::Tensor loss = task.loss({})(logits, none, {.images = 1, .counted = counted});
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_EQ(logits.grad().abs().max().item<double>(), 0);
}

TEST(PixelLoss, IsLibTorchsOwn) {
  const at::Tensor logits = at::randn({3, 4, 5, 6});
  at::Tensor truth = at::randint(0, 4, {3, 5, 6}, at::kLong);
  truth.masked_fill_(at::rand({3, 5, 6}).lt(0.2), kNo);
  const double expected =
      at::cross_entropy_loss(logits, truth, {}, at::Reduction::Mean, kNo, 0.1).item<double>();
  const at::Tensor bytes = truth.to(at::kByte);
  EXPECT_NEAR((pixel_cross_entropy(logits, bytes, 0.1) / counted_pixels(bytes)).item<double>(),
              expected, 1e-5);
}

}  // namespace
}  // namespace sape2::train
