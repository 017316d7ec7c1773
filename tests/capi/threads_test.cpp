#include "capi/support.h"

#include <atomic>
#include <thread>

namespace sape2::capi::test {
namespace {

std::vector<float> logits_of(sape2_infer_session* session) {
  const auto bytes = some_bytes(32, 32, 3);
  const sape2_infer_image image = image_of(bytes, 32, 32);
  std::vector<float> logits(kClasses);
  EXPECT_EQ(sape2_infer_run_images(session, &image, 1, logits.data(), logits.size()),
            SAPE2_INFER_OK)
      << sape2_infer_last_error();
  return logits;
}

TEST(CThreads, EightOnOneModelAgree) {
  const Opened opened;
  const std::vector<float> alone = logits_of(opened.session);
  std::vector<std::vector<float>> found(8);
  std::vector<std::thread> threads;
  for (auto& mine : found) {
    threads.emplace_back([&] {
      sape2_infer_session_options options = SAPE2_INFER_SESSION_OPTIONS_INIT;
      options.threads = 2;
      sape2_infer_session* session = nullptr;
      EXPECT_EQ(sape2_infer_session_new(opened.model, &options, &session), SAPE2_INFER_OK);
      for (int i = 0; i < 3; ++i) mine = logits_of(session);
      EXPECT_EQ(sape2_infer_session_free(session), SAPE2_INFER_OK);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : found) EXPECT_EQ(mine, alone);
}

struct Caller {
  std::atomic<int> calls = 0;
  sape2_infer_session* session = nullptr;
  std::atomic<int> nested = SAPE2_INFER_OK;
};

// Halves on two threads.
void in_two_halves(void* context, std::int64_t count, sape2_infer_body body, void* work) {
  ++static_cast<Caller*>(context)->calls;
  std::thread second([=] { body(work, count / 2, count); });
  body(work, 0, count / 2);
  second.join();
}

TEST(CThreads, OfTheCaller) {
  const Opened opened;
  Caller caller;
  sape2_infer_session_options options = SAPE2_INFER_SESSION_OPTIONS_INIT;
  options.parallel_for = in_two_halves;
  options.context = &caller;
  sape2_infer_session* session = nullptr;
  ASSERT_EQ(sape2_infer_session_new(opened.model, &options, &session), SAPE2_INFER_OK);
  EXPECT_EQ(logits_of(session), logits_of(opened.session));
  EXPECT_GT(caller.calls, 0);
  EXPECT_EQ(sape2_infer_session_free(session), SAPE2_INFER_OK);
}

// While the session computes, it is asked again.
void asking_again(void* context, std::int64_t count, sape2_infer_body body, void* work) {
  auto& caller = *static_cast<Caller*>(context);
  const std::vector<float> pixels(3 * 32 * 32);
  const sape2_infer_batch batch = batch_of(pixels, 1, 32, 32);
  float logits[kClasses];
  caller.nested = sape2_infer_run(caller.session, &batch, logits, kClasses);
  body(work, 0, count);
}

TEST(CThreads, ASessionServesOneCallAtATime) {
  const Opened opened;
  Caller caller;
  sape2_infer_session_options options = SAPE2_INFER_SESSION_OPTIONS_INIT;
  options.parallel_for = asking_again;
  options.context = &caller;
  ASSERT_EQ(sape2_infer_session_new(opened.model, &options, &caller.session), SAPE2_INFER_OK);
  EXPECT_EQ(logits_of(caller.session), logits_of(opened.session));
  EXPECT_EQ(caller.nested, SAPE2_INFER_BUSY);
  EXPECT_EQ(sape2_infer_session_free(caller.session), SAPE2_INFER_OK);
}

TEST(CThreads, SentencesBelongToTheirThread) {
  sape2_infer_model* model = nullptr;
  EXPECT_EQ(sape2_infer_model_open("mine", nullptr, &model), SAPE2_INFER_BAD_FILE);
  std::thread([] { EXPECT_STREQ(sape2_infer_last_error(), ""); }).join();
  EXPECT_NE(std::string(sape2_infer_last_error()).find("mine"), std::string::npos);
}

}  // namespace
}  // namespace sape2::capi::test
