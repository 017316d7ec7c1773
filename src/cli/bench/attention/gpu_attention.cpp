#include "cli/bench/attention/gpu_attention.h"

#include "cli/bench/meters/gpu_timer.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace sape2::cli {
namespace {

constexpr int kReferenceRounds = 3;  // slow, and long enough to be told apart

GpuMeasured measured(AttentionRunner& runner, AttentionPath path, int rounds) {
  const auto work = [&] { runner.run(path); };
  GpuMeasured result;
  result.mebibytes = peak_extra_mebibytes(work);
  result.called = called_milliseconds(work, rounds);
  // The formula allocates and frees as it goes; its calls cost little beside its work.
  if (path != AttentionPath::reference) result.recorded = recorded_milliseconds(work, rounds);
  runner.clear();
  return result;
}

}  // namespace

double GpuAttentionRow::share_of_ceilings() const {
  const double bytes = wanted.plain_bytes() / ceilings.terabytes / 1e9;
  const double operations = wanted.plain_operations() / ceilings.teraflops / 1e9;
  return std::max(bytes, operations) / fused.device();
}

GpuCeilings measure_ceilings(const std::string& device, const std::string& dtype, int rounds) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 30, kSide = 8192;
  const auto on = at::device(c10::Device(device));
  const auto from = at::empty({kBytes}, on.dtype(at::kByte));
  auto to = at::empty_like(from);
  const auto a = at::randn({kSide, kSide}, on.dtype(scalar_type_named(dtype)));
  auto out = at::empty_like(a);
  const double copy = called_milliseconds([&] { to.copy_(from); }, rounds);
  const double product = called_milliseconds([&] { at::mm_out(out, a, a); }, rounds);
  const double side = kSide;
  return {dtype, 2.0 * kBytes / copy / 1e9, 2 * side * side * side / product / 1e9};
}

GpuAttentionRow measure_gpu_row(const AttentionCase& wanted, const GpuCeilings& ceilings,
                                int rounds, bool with_reference) {
  AttentionRunner runner(wanted);
  GpuAttentionRow row{.wanted = wanted, .ceilings = ceilings};
  row.fused = measured(runner, AttentionPath::fused, rounds);
  row.plain = measured(runner, AttentionPath::plain, rounds);
  if (!with_reference) return row;
  try {
    row.reference = measured(runner, AttentionPath::reference, kReferenceRounds);
  } catch (const c10::OutOfMemoryError&) {
    runner.clear();
  }
  return row;
}

}  // namespace sape2::cli
