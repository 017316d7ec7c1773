// The shared memory of a block that has a whole head; needs no GPU.
#include "kernels/cuda/attention_head/layout.h"
#include "readme.h"

#include <algorithm>
#include <string>
#include <vector>

namespace sape2::kernels::cuda::head {
namespace {

struct Part {
  int begin;
  const char *members, *holds;
};

/// Backward from saved stage 1, direct form, 14×14, heads of 64.
TEST(HeadLayout, TheReadmeShowsThatOfFourteenByFourteen) {
  constexpr Layout l = exact_layout(GridKind::fourteen, BiasForm::direct, 64, true, true);
  static_assert(l.logits == l.square && l.bins == l.dout && l.lines == l.dout);
  std::vector<Part> parts = {
      {l.q, "`q`", "q of an image, v of the next one"},
      {l.k, "`k`", "k"},
      {l.tables, "`tables`", "the reachable rows of both tables"},
      {l.v, "`v`", "v of an image, q of the next one"},
      {l.dout, "`dout`, `lines`, `bins`", "dout; gradients of vectors, then of table values"},
      {l.square, "`square`, `logits`", "a warp's saved vectors at the end of its rows; P; then dS"},
      {l.deltas, "`deltas`", "delta"},
      {l.tokens, "`tokens`", "the barrier; other grids: also the token of each slot"}};
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.begin < b.begin; });
  std::string text =
      "| from byte | bytes | members of `Layout` | what is there |\n|---|---|---|---|\n";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int end = i + 1 < parts.size() ? parts[i + 1].begin : l.bytes;
    ASSERT_GT(end, parts[i].begin) << parts[i].members;
    text += "| " + std::to_string(parts[i].begin) + " | " + std::to_string(end - parts[i].begin) +
            " | " + parts[i].members + " | " + parts[i].holds + " |\n";
  }
  const int limit = named_device("sm_90").shared_memory;
  EXPECT_LE(l.bytes, limit);
  text += "| " + std::to_string(l.bytes) + " | | `bytes` | the end; a block may have " +
          std::to_string(limit) + " |\n";
  expect_in_readme("head_layout_test.cpp", text);
}

}  // namespace
}  // namespace sape2::kernels::cuda::head
