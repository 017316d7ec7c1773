#include "sape2/explain/picture.h"

#include "sape2/components.h"
#include "sape2/explain/view.h"

#include "explain/hand_made.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"

namespace sape2::explain {
namespace {

using namespace sape2::testing;

TEST(Pictures, ComeFromDataSetsByNameAndRange) {
  PictureSource source;
  const auto one = source.find("shapes:test:3");
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].name, "shapes:test:3");
  EXPECT_EQ(one[0].image.channels, 3);
  EXPECT_FALSE(one[0].label.empty());
  EXPECT_EQ(source.find("shapes:test:3-6").size(), 4U);
  EXPECT_EQ(source.find("shapes:test:3-6")[0].image.pixels, one[0].image.pixels);
}

TEST(Pictures, ComeFromFiles) {
  if (!SAPE2_HAVE_IMAGES) GTEST_SKIP() << "this build reads no images";
  const ScratchFolder folder;
  data::write_png(folder / "a:test:1", test::some_image(5, 7));
  EXPECT_EQ(PictureSource().find((folder / "a:test:1").native())[0].image.width, 7);
}

TEST(Pictures, MistakesAreNamed) {
  PictureSource source;
  expect_contains(error_text([&] { source.find("shapes:test:99999"); }), "the last is 999");
  expect_contains(error_text([&] { source.find("shapes:test:5-2"); }), "range");
  expect_contains(error_text([&] { source.find("shapes:test:x"); }), "index");
  expect_contains(error_text([&] { source.find("shaeps:test:1"); }), "shapes");
  expect_contains(error_text([&] { source.find("nowhere.png"); }), "nowhere.png");
}

TEST(Pictures, FitWholePatches) {
  nn::ViTConfig vit;
  EXPECT_EQ(fit_image(test::some_image(32, 32), vit, {}).height, 32);
  const data::Image wide = fit_image(test::some_image(100, 205), vit, {});
  EXPECT_EQ(wide.height, 32);
  EXPECT_EQ(wide.width, 64);
  EXPECT_EQ(fit_image(test::some_image(3, 3), vit, {.shorter_side = 2}).height, 4);
}

TEST(Views, AreReadFromText) {
  EXPECT_EQ(parse_what("bias-x"), What::bias_x);
  expect_contains(error_text([] { parse_what("biass"); }), "\"bias\"");
  EXPECT_EQ(parse_patch("3,5"), (Patch{3, 5}));
  for (const char* wrong : {"", "3", "3,", "-1,2", "1,2,3", "a,b"}) {
    expect_contains(error_text([&] { parse_patch(wrong); }), "not understood");
  }
  EXPECT_EQ(to_string(Selection{1, std::nullopt}), "layer 2, mean of the heads");
}

}  // namespace
}  // namespace sape2::explain
