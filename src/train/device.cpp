#include "sape2/train/device.h"

#include "sape2/error.h"
#include "sape2/nn/nearest_name.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cctype>

namespace sape2::train {

c10::Device device_named(const std::string& name) {
  if (name == "cpu") return at::kCPU;
  const std::string index = name.starts_with("cuda:") ? name.substr(5) : "0";
  const bool digits = !index.empty() && index.size() <= 2 &&
                      std::ranges::all_of(index, [](unsigned char c) { return std::isdigit(c); });
  if (!digits || !name.starts_with("cuda") || (name != "cuda" && name[4] != ':')) {
    throw Error("device " + nn::in_quotes(name) + " is not known; valid are cpu, cuda and cuda:N");
  }
  if (!at::hasCUDA()) {
    throw Error("device is " + nn::in_quotes(name) +
                ", but LibTorch finds no CUDA GPU here; use --device cpu");
  }
  const c10::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(std::stoi(index)));
  try {
    at::empty({1}, at::device(device));
  } catch (const c10::Error&) {
    throw Error("device is " + nn::in_quotes(name) + ", but there is no GPU of that number");
  }
  return device;
}

}  // namespace sape2::train
