// Which CUDA kernels calls take; needs no GPU.
#include "sape2/kernels/dispatch.h"

#include "sape2/base/error.h"

#include "readme.h"

#include <gtest/gtest.h>

namespace sape2::kernels::cuda {
namespace {

Call sape2_call(std::int64_t rows, std::int64_t cols, Form form, bool backward = false) {
  Call call;
  call.shape = {128, 6, rows, cols, 0, 64};
  call.form = form;
  call.span = form == Form::direct ? Span::between : Span::suffix;
  call.backward = backward;
  call.scale = 0.125F;
  return call;
}

const Device kSm90 = named_device("sm_90"), kSm80 = named_device("sm_80");

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const auto& line : lines) all += line + "\n";
  return all;
}

TEST(Dispatch, SmallGridsTakeOneBlockPerHead) {
  for (const Form form : {Form::direct, Form::distance})
    for (const auto* device : {&kSm90, &kSm80}) {
      const Choice choice = choose(sape2_call(8, 8, form), *device);
      EXPECT_EQ(choice.attention, Attention::head);
      EXPECT_EQ(choice.stage1, Stage1::in_attention);
      EXPECT_EQ(choice.not_head, nullptr);
    }
}

TEST(Dispatch, BackwardOfFourteenByFourteenReadsSavedStage1) {
  const auto kernels = kernels_of(sape2_call(14, 14, Form::direct, true), kSm90);
  EXPECT_NE(joined(kernels).find("backward_saved.cuh: backward_saved_kernel for 14×14"),
            std::string::npos)
      << joined(kernels);
  // The distance form recomputes stage 1.
  EXPECT_EQ(joined(kernels_of(sape2_call(14, 14, Form::distance, true), kSm90)).find("saved"),
            std::string::npos);
}

TEST(Dispatch, SumsAreOfParametersThatTheOperatorHas) {
  const auto last = [](Operator op, std::int64_t side) {
    Call call = sape2_call(side, side, Form::direct, true);
    call.op = op;
    return kernels_of(call, kSm90).back();
  };
  for (const std::int64_t side : {8, 32}) {
    EXPECT_EQ(last(Operator::plain, side).find("sum_kernel"), std::string::npos);
    EXPECT_NE(last(Operator::axis_bias, side).find("the gain's gradient"), std::string::npos);
    EXPECT_NE(last(Operator::sape2, side).find("parameters' gradients"), std::string::npos);
    EXPECT_NE(last(Operator::cope, side).find("parameters' gradients"), std::string::npos);
  }
}

TEST(Dispatch, BlocksThatShareAHeadOfCopeHaveTheirKeysAddedUp) {
  const auto adds = [](std::int64_t images, std::int64_t tokens) {
    Call call = sape2_call(1, tokens, Form::direct, true);
    call.op = Operator::cope;
    call.shape.images = images;
    return joined(kernels_of(call, kSm90)).find("cope_keys_kernel") != std::string::npos;
  };
  EXPECT_TRUE(adds(2, 196));     // 12 heads, 22 blocks for each, 4 tiles of queries
  EXPECT_FALSE(adds(2, 64));     // one tile
  EXPECT_FALSE(adds(128, 196));  // more heads than blocks
}

TEST(Dispatch, LargeGridsTakeTilesByTmaOnSm90Alone) {
  for (const Form form : {Form::direct, Form::distance}) {
    const Choice hopper = choose(sape2_call(32, 32, form), kSm90);
    EXPECT_EQ(hopper.attention, Attention::sm90);
    EXPECT_EQ(hopper.stage1, Stage1::specialized);
    EXPECT_STREQ(hopper.not_head, "it takes grids of up to 16 columns");
    const Choice ampere = choose(sape2_call(32, 32, form), kSm80);
    EXPECT_EQ(ampere.attention, Attention::sm80);
    EXPECT_EQ(ampere.stage1, Stage1::specialized);
    EXPECT_NE(ampere.not_sm90, nullptr);
    EXPECT_FALSE(ampere.stage1_in_clusters);
  }
}

TEST(Dispatch, Stage1RunsBeforeTheKeysOfTheDirectForm) {
  EXPECT_TRUE(choose(sape2_call(32, 32, Form::direct, true), kSm90).stage1_before_dkdv);
  EXPECT_FALSE(choose(sape2_call(32, 32, Form::direct, false), kSm90).stage1_before_dkdv);
  EXPECT_FALSE(choose(sape2_call(32, 32, Form::distance, true), kSm90).stage1_before_dkdv);
  EXPECT_FALSE(choose(sape2_call(32, 32, Form::direct, true), kSm80).stage1_before_dkdv);
}

/// Each option that a faster family cannot take moves a call to the next one.
TEST(Dispatch, EveryLimitHasItsReason) {
  const auto sm90_reason = [](auto change) {
    Call call = sape2_call(32, 32, Form::direct);
    change(call);
    const Choice choice = choose(call, kSm90);
    EXPECT_EQ(choice.attention, Attention::sm80);
    return std::string(choice.not_sm90 == nullptr ? "" : choice.not_sm90);
  };
  EXPECT_NE(sm90_reason([](Call& c) { c.dtype = DType::float32; }).find("16-bit"),
            std::string::npos);
  EXPECT_NE(sm90_reason([](Call& c) { c.shape.head_size = 80; }).find("64 channels"),
            std::string::npos);
  EXPECT_NE(sm90_reason([](Call& c) { c.aligned = false; }).find("16 bytes"), std::string::npos);
  EXPECT_NE(sm90_reason([](Call& c) { c.scale = -1; }).find("scales"), std::string::npos);
  EXPECT_NE(sm90_reason([](Call& c) {
              c.form = Form::distance;
              c.source = Source::qk;
            }).find("one set"),
            std::string::npos);
  EXPECT_NE(sm90_reason([](Call& c) {
              c.form = Form::distance;
              c.shape.rows = 80;
            }).find("64 entries"),
            std::string::npos);

  const auto stage1_reason = [](auto change) {
    Call call = sape2_call(32, 32, Form::direct, true);
    change(call);
    const Choice choice = choose(call, kSm90);
    EXPECT_EQ(choice.stage1, Stage1::generic);
    EXPECT_FALSE(choice.stage1_before_dkdv);
    return std::string(choice.not_specialized == nullptr ? "" : choice.not_specialized);
  };
  EXPECT_NE(stage1_reason([](Call& c) { c.positions = 5; }).find("tables"), std::string::npos);
  EXPECT_NE(stage1_reason([](Call& c) { c.source = Source::qk; }).find("one set"),
            std::string::npos);
  EXPECT_NE(stage1_reason([](Call& c) { c.shape.head_size = 32; }).find("64 channels"),
            std::string::npos);
  EXPECT_NE(stage1_reason([](Call& c) { c.shape.rows = 65; }).find("64 patches"),
            std::string::npos);
  EXPECT_NE(stage1_reason([](Call& c) { c.tables_aligned = false; }).find("16 bytes"),
            std::string::npos);
  EXPECT_NE(stage1_reason([](Call& c) { c.short_strides = false; }).find("32 bits"),
            std::string::npos);
  EXPECT_NE(stage1_reason([](Call& c) { c.wants_dq_dk = false; }).find("dq and dk"),
            std::string::npos);
}

/// Scratch memory is asked for before rows are known to be aligned.
TEST(Dispatch, AlignmentDoesNotMoveACallFromOrToTheHeadKernels) {
  for (const std::int64_t side : {2, 7, 8, 12, 14, 16, 17, 24})
    for (const Form form : {Form::direct, Form::distance})
      for (const std::int64_t head_size : {16, 32, 40, 64, 72}) {
        Call call = sape2_call(side, side, form);
        call.shape.head_size = head_size;
        const Choice aligned = choose(call, kSm90);
        call.aligned = false;
        const Choice other = choose(call, kSm90);
        EXPECT_EQ(aligned.attention == Attention::head, other.attention == Attention::head);
        EXPECT_EQ(aligned.stage1_in_clusters, other.stage1_in_clusters);
      }
}

/// What is refused depends on neither the direction nor alignment: forward and backward must agree.
TEST(Dispatch, RefusesWhatDoesNotFit) {
  Call call = sape2_call(32, 32, Form::distance);
  EXPECT_EQ(refusal(call, kSm80), "");
  call.shape.head_size = 129;
  EXPECT_NE(refusal(call, kSm90).find("head_size is 129"), std::string::npos);
  call = sape2_call(129, 4, Form::direct);
  EXPECT_NE(refusal(call, kSm90).find("129 × 4"), std::string::npos);
  call = sape2_call(128, 128, Form::distance);
  call.shape.head_size = 128;
  call.dtype = DType::float32;
  const std::string sentence = refusal(call, kSm90);
  EXPECT_NE(sentence.find("shared memory"), std::string::npos);
  call.backward = true;
  call.aligned = false;
  EXPECT_EQ(refusal(call, kSm90), sentence);
  call.op = Operator::cope;
  EXPECT_NE(refusal(call, named_device("sm_86")).find("contextual"), std::string::npos);
  call.op = Operator::plain;
  call.shape.rows = call.shape.cols = 200;
  EXPECT_EQ(refusal(call, kSm90), "");
  EXPECT_NE(refusal(call, named_device("sm_86")).find("shared memory"), std::string::npos);
}

TEST(Dispatch, ServesAnyNumberOfTokens) {
  for (const auto op : {Operator::plain, Operator::axis_bias, Operator::sape2, Operator::cope})
    for (const auto dtype : {DType::float32, DType::bfloat16})
      for (const bool backward : {false, true})
        for (const auto* device : {&kSm90, &kSm80})
          for (int tokens = 1; tokens <= 40; ++tokens) {
            Call call = sape2_call(1, tokens, Form::direct, backward);
            call.op = op;
            call.dtype = dtype;
            if (op == Operator::plain || op == Operator::cope)
              call.shape = {2, 3, 0, 0, tokens, 24};
            EXPECT_EQ(refusal(call, *device), "") << tokens;
            EXPECT_NE(choose(call, *device).attention, Attention::none) << tokens;
            EXPECT_FALSE(kernels_of(call, *device).empty()) << tokens;
          }
}

TEST(Dispatch, KnowsItsDevices) {
  for (const auto& name : device_names()) EXPECT_GT(named_device(name).shared_memory, 0);
  EXPECT_THROW(named_device("sm_70"), Error);
}

// --------------------------------------------------------------------------------- the README

std::string family(const Call& call, const Device& device) {
  if (!refusal(call, device).empty()) return "none: the reference operators";
  const Choice choice = choose(call, device);
  if (choice.attention == Attention::head) {
    const std::string kernel = kernels_of(call, device)[0];
    return "`attention_head`" + kernel.substr(kernel.find(" for "));
  }
  std::string text;
  if (choice.stage1 != Stage1::none) text = "`" + std::string(name_of(choice.stage1)) + "`";
  if (choice.attention == Attention::none) return text;
  return (text.empty() ? "" : text + ", ") + "`" + name_of(choice.attention) + "`";
}

std::string table_and_examples() {
  struct Row {
    const char* name;
    Call call;
  };
  std::vector<Row> rows;
  const auto add = [&](const char* name, const Call& call) { rows.push_back({name, call}); };
  const auto changed = [](Call call, auto change) {
    change(call);
    return call;
  };
  for (const Form form : {Form::direct, Form::distance}) {
    const bool direct = form == Form::direct;
    add(direct ? "direct, 7×7" : "distance, 7×7", sape2_call(7, 7, form));
    add(direct ? "direct, 8×8" : "distance, 8×8", sape2_call(8, 8, form));
    add(direct ? "direct, 14×14" : "distance, 14×14", sape2_call(14, 14, form));
    add(direct ? "direct, 14×14 + class token" : "distance, 14×14 + class token",
        changed(sape2_call(14, 14, form), [](Call& c) { c.shape.prefix = 1; }));
    add(direct ? "direct, 32×32" : "distance, 32×32", sape2_call(32, 32, form));
    add(direct ? "direct, 64×64" : "distance, 64×64", sape2_call(64, 64, form));
    add(direct ? "direct, 100×100" : "distance, 100×100", sape2_call(100, 100, form));
    add(direct ? "direct, 32×32, mode QK" : "distance, 32×32, mode QK",
        changed(sape2_call(32, 32, form), [](Call& c) { c.source = Source::qk; }));
  }
  add("direct, 32×32, head size 128",
      changed(sape2_call(32, 32, Form::direct), [](Call& c) { c.shape.head_size = 128; }));
  add("direct, 32×32, float32",
      changed(sape2_call(32, 32, Form::direct), [](Call& c) { c.dtype = DType::float32; }));
  add("given vectors, direct, 14×14",
      changed(sape2_call(14, 14, Form::direct), [](Call& c) { c.op = Operator::axis_bias; }));
  add("given vectors, direct, 64×64",
      changed(sape2_call(64, 64, Form::direct), [](Call& c) { c.op = Operator::axis_bias; }));
  add("no bias, 197 tokens",
      changed(sape2_call(1, 197, Form::direct), [](Call& c) { c.op = Operator::plain; }));
  add("no bias, 1024 tokens",
      changed(sape2_call(1, 1024, Form::direct), [](Call& c) { c.op = Operator::plain; }));
  add("stage 1 alone, 32×32",
      changed(sape2_call(32, 32, Form::direct), [](Call& c) { c.op = Operator::axis_vectors; }));
  add("contextual positions, 196 tokens",
      changed(sape2_call(1, 196, Form::direct), [](Call& c) { c.op = Operator::cope; }));
  std::string text = "| call | sm_90 | sm_80 |\n|---|---|---|\n";
  for (const auto& [name, call] : rows)
    text += "| " + std::string(name) + " | " + family(call, kSm90) + " | " + family(call, kSm80) +
            " |\n";
  text += "\n```\n";
  for (const auto& call :
       {sape2_call(14, 14, Form::direct, true), sape2_call(32, 32, Form::direct, false),
        sape2_call(32, 32, Form::direct, true), sape2_call(32, 32, Form::distance, true)})
    text += explain(call, kSm90);
  return text + "```\n";
}

TEST(Dispatch, TheReadmeSaysWhichKernelServesWhichCall) {
  expect_in_readme("dispatch_test.cpp", table_and_examples());
}

}  // namespace
}  // namespace sape2::kernels::cuda
