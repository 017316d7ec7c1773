// The reference of these tests, in float64, and the kernels, in float32, against the golden cases.
#include "golden.h"

#include "harness.h"
#include "targets.h"

#include <gtest/gtest.h>

namespace sape2::kernels::testing {
namespace {

constexpr double kExact = 1e-10;
constexpr double kFloat = 2e-4;

template <typename T>
void expect_golden(const Golden& golden, const Problem<double>& p, const Result<T>& r,
                   double tolerance) {
  const auto check = [&](const std::string& name, const Array<T>& value) {
    if (!golden.has(name)) return;
    const Array<double> expected = golden.array(name);
    EXPECT_LE(worst(value, expected), tolerance * std::max(1.0, largest(expected))) << name;
  };
  check("out", r.out);
  check("dq", r.dq);
  check("dk", r.dk);
  check("dv", r.dv);
  const bool both = p.source == Source::qk;
  const bool q = p.source == Source::q;
  check(both ? "dexq" : "dex", both || q ? r.dq_x : r.dk_x);
  check(both ? "deyq" : "dey", both || q ? r.dq_y : r.dk_y);
  if (both) check("dexk", r.dk_x), check("deyk", r.dk_y);
  check("dgain", r.dgain);
  check("dgate_scale", r.dgate_scale);
  check("dgate_offset", r.dgate_offset);
}

TEST(Golden, ReferenceAgrees) {
  ASSERT_GE(golden_files().size(), 14U);
  for (const auto& path : golden_files()) {
    SCOPED_TRACE(path.filename());
    const Golden golden(path);
    const Problem<double> p = golden.problem();
    const Result<double> r = Reference<double>(p).run();
    expect_golden(golden, p, r, kExact);
    if (p.source == Source::qk) continue;
    EXPECT_LE(worst(r.x, golden.array("ux")), kExact);
    EXPECT_LE(worst(r.y, golden.array("uy")), kExact);
  }
}

TEST(Golden, KernelsAgree) {
  for_each_target([] {
    for (const auto& path : golden_files()) {
      SCOPED_TRACE(path.filename());
      const Golden golden(path);
      const Problem<double> p = golden.problem();
      expect_golden(golden, p, run_kernels(cast<float>(p), ThreadExecutor(2)), kFloat);
    }
  });
}

TEST(Golden, CopeAgrees) {
  const Golden golden(std::filesystem::path(SAPE2_GOLDEN_DIR) / "cope.safetensors");
  const Problem<double> p = golden.problem();
  const CopeResult<double> r = cope_reference(p);
  EXPECT_LE(worst(r.out, golden.array("out")), kExact);
  EXPECT_LE(worst(r.dq, golden.array("dq")), kExact);
  EXPECT_LE(worst(r.dk, golden.array("dk")), kExact);
  EXPECT_LE(worst(r.dv, golden.array("dv")), kExact);
  EXPECT_LE(worst(r.dtable, golden.array("de")), kExact);
  for_each_target([&] {
    const CopeResult<float> k = run_cope_kernels(cast<float>(p), ThreadExecutor(2));
    EXPECT_LE(worst(k.out, r.out), kFloat);
    EXPECT_LE(worst(k.dq, r.dq), kFloat);
    EXPECT_LE(worst(k.dk, r.dk), kFloat);
    EXPECT_LE(worst(k.dv, r.dv), kFloat);
    EXPECT_LE(worst(k.dtable, r.dtable), kFloat * std::max(1.0, largest(r.dtable)));
  });
}

}  // namespace
}  // namespace sape2::kernels::testing
