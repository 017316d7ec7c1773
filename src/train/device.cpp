#include "sape2/train/device.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace sape2::train {
namespace {

// Two runs from one seed are to end with the same weights.
void compute_deterministically() {
  // cuBLAS chooses the same way each time only where its workspace is fixed; read once, at its
  // start.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  // LibTorch warns where it has no such implementation; those in use here are deterministic.
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
#if TORCH_VERSION_MAJOR >= 2
  // Nothing here reads memory that was not written: filling it first would only cost time.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
#endif
}

}  // namespace

c10::Device device_named(const std::string& name) {
  if (name == "cpu") return at::kCPU;
  const std::string index = name.starts_with("cuda:") ? name.substr(5) : "0";
  const bool digits = !index.empty() && index.size() <= 2 &&
                      std::ranges::all_of(index, [](unsigned char c) { return std::isdigit(c); });
  if (!digits || !name.starts_with("cuda") || (name != "cuda" && name[4] != ':')) {
    throw Error("device " + in_quotes(name) + " is not known; valid are cpu, cuda and cuda:N");
  }
  if (!at::hasCUDA()) {
    throw Error("device is " + in_quotes(name) +
                ", but LibTorch finds no CUDA GPU here; use --device cpu");
  }
  const c10::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(std::stoi(index)));
  try {
    at::empty({1}, at::device(device));
  } catch (const c10::Error&) {
    throw Error("device is " + in_quotes(name) + ", but there is no GPU of that number");
  }
  compute_deterministically();
  return device;
}

}  // namespace sape2::train
