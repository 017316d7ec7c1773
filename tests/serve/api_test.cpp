#include "sape2/explain/inspection.h"
#include "sape2/explain/picture.h"

#include "serve/served.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>

namespace sape2::serve::test {
namespace {

TEST(Server, GivesThePageWithItsFiles) {
  const Served served;
  const Reply page = get(served.port(), "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.head.find("text/html"), std::string::npos);
  EXPECT_NE(page.head.find("Content-Security-Policy: default-src 'self'"), std::string::npos);
  for (const char* file :
       {"/app.js", "/view.js", "/draw.js", "/header.js", "/mask.js", "/patch_canvas.js",
        "/pictures.js", "/state.js", "/style.css", "/icon.svg"}) {
    EXPECT_EQ(get(served.port(), file).status, 200) << file;
  }
  EXPECT_EQ(page.body.find("http://"), std::string::npos) << "the page must work offline";
  EXPECT_EQ(page.body.find("https://"), std::string::npos);
}

TEST(Server, TellsWhatItHas) {
  const Served served;
  const auto setup = get(served.port(), "/api/setup").json();
  EXPECT_EQ(setup["models"][0]["encoding"], "sape2-k+ape");
  EXPECT_EQ(setup["models"].size(), 2U);
  EXPECT_EQ(setup["data"]["images"], 20);
  EXPECT_EQ(setup["scales"]["green"]["distance"][0], (nlohmann::json{255, 255, 255}));
}

TEST(Server, RowsAreThoseOfTheLibrary) {
  const Served served;
  const auto reply =
      get(served.port(), "/api/rows?model=0&image=data:3&what=bias&layer=2&head=1&y=1&x=2").json();
  const ServedModel model = small_model("sape2-k+ape");
  const auto dataset = data::make_shapes({.split = data::Split::test, .count = 20}).dataset;
  const explain::Inspection seen(model.model, explain::picture_of(dataset, "test", 3).image);
  const at::Tensor expected = seen.rows(explain::What::bias, {1, 0}, {{1, 2}})[0];
  ASSERT_EQ(reply["values"].size(), 64U);
  EXPECT_EQ(reply["kind"], "distance");
  for (std::int64_t i = 0; i < 64; ++i) {
    const auto value = expected[i].item<double>();
    EXPECT_NEAR(reply["values"][static_cast<std::size_t>(i)].get<double>(), value,
                1e-5 * std::abs(value) + 1e-12);
  }
  EXPECT_EQ(reply["values"][10], 0.0);
}

TEST(Server, GatesPositionsAndWhatAnEncodingLacks) {
  const Served served;
  const auto gates = get(served.port(), "/api/rows?model=0&image=data:0&what=gates&y=0&x=0").json();
  EXPECT_TRUE(gates["values"][9].is_null());
  EXPECT_TRUE(gates["values"][8].is_number());
  const auto positions =
      get(served.port(), "/api/rows?model=0&image=data:0&what=positions&y=0&x=0").json();
  EXPECT_EQ(positions["along_x"].size(), 8U);
  const auto seen = get(served.port(), "/api/inspect?model=1&image=data:0").json();
  EXPECT_EQ(seen["offers"]["attention"], true);
  EXPECT_NE(seen["offers"]["bias"].get<std::string>().find("rope2d"), std::string::npos);
  const Reply none = get(served.port(), "/api/rows?model=1&image=data:0&what=bias&y=0&x=0");
  EXPECT_EQ(none.status, 400);
  EXPECT_NE(none.error().find("look at its attention"), std::string::npos);
}

TEST(Server, SaysWhatAMapDoesToTheAttention) {
  const Served served;
  const auto bias = get(served.port(), "/api/rows?model=0&image=data:0&what=bias&y=0&x=0").json();
  EXPECT_NE(bias["caption"][0].get<std::string>().find("Far patches gain attention"),
            std::string::npos);
  ASSERT_EQ(bias["logit_factor"].size(), 2U);
  EXPECT_NEAR(bias["logit_factor"][0].get<double>(), 0.25, 1e-6);  // 1/√16
  EXPECT_EQ(bias["logit_factor"][0], bias["logit_factor"][1]);
  const auto attention =
      get(served.port(), "/api/rows?model=1&image=data:0&what=attention&y=0&x=0").json();
  EXPECT_TRUE(attention["logit_factor"].is_null());
  EXPECT_NE(attention["caption"][1].get<std::string>().find("rope2d"), std::string::npos);
}

TEST(Server, WarnsWhereTablesClamp) {
  const Served served;
  const auto trained = get(served.port(), "/api/inspect?model=0&image=data:0").json();
  EXPECT_TRUE(trained["warning"].is_null());
  EXPECT_EQ(trained["trained"], (nlohmann::json{8, 8}));
  const auto larger = get(served.port(), "/api/inspect?model=0&image=data:0&size=128").json();
  EXPECT_NE(larger["warning"].get<std::string>().find("32×32 patches"), std::string::npos);
  const auto rotary = get(served.port(), "/api/inspect?model=1&image=data:0&size=128").json();
  EXPECT_TRUE(rotary["warning"].is_null());
}

TEST(Server, TakesAnImageAndLooksAtIt) {
  const Served served;
  const Reply kept = post(served.port(), "/api/images", png_file(60, 90));
  ASSERT_EQ(kept.status, 200) << kept.body;
  const std::string name = kept.json()["image"];
  const auto seen = get(served.port(), "/api/inspect?model=0&image=" + name).json();
  EXPECT_EQ(seen["rows"], 8);
  EXPECT_EQ(seen["cols"], 12);
  EXPECT_EQ(seen["predictions"].size(), 5U);
  const Reply picture = get(served.port(), "/api/picture?image=" + name);
  EXPECT_TRUE(picture.body.starts_with("\x89PNG"));
}

TEST(Server, DrawsTheFigure) {
  const Served served;
  for (const char* format : {"png", "svg", "pdf"}) {
    const Reply figure = get(served.port(), std::string("/api/figure?model=0&model2=0&image=data:1"
                                                        "&what=bias&y=1&x=1&format=") +
                                                format);
    EXPECT_EQ(figure.status, 200) << figure.body;
    EXPECT_GT(figure.body.size(), 2000U);
  }
}

// A hover on 8×8 patches is answered within 50 ms; the minimum, as the machine may be busy.
TEST(Server, AnswersAHoverAtOnce) {
  using Clock = std::chrono::steady_clock;
  const Served served;
  get(served.port(), "/api/rows?model=0&image=data:0&what=bias&y=0&x=0");
  double least = 1e9;
  for (int i = 0; i < 64; ++i) {
    const auto begin = Clock::now();
    const Reply reply =
        get(served.port(), "/api/rows?model=0&image=data:0&what=bias&y=" + std::to_string(i / 8) +
                               "&x=" + std::to_string(i % 8));
    EXPECT_EQ(reply.status, 200);
    least =
        std::min(least, std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  EXPECT_LT(least, 50);
  RecordProperty("hover_ms", std::to_string(least));
}

TEST(Server, ALargeGridIsAnsweredRowByRow) {
  const Served served;
  const auto rows =
      get(served.port(), "/api/rows?model=0&image=data:0&size=256&what=bias&layer=1&y=63&x=63")
          .json();
  EXPECT_EQ(rows["values"].size(), 4096U);
  const Reply too_large =
      get(served.port(), "/api/rows?model=0&image=data:0&size=512&what=bias&y=0&x=0");
  EXPECT_EQ(too_large.status, 400);
  EXPECT_NE(too_large.error().find("more than the 4096 allowed"), std::string::npos);
}

}  // namespace
}  // namespace sape2::serve::test
