#pragma once

#include <c10/core/Device.h>

#include <string>

namespace sape2::train {

/// The device of that name (`cpu`, `cuda`, `cuda:1`); throws Error if there is none.
c10::Device device_named(const std::string& name);

}  // namespace sape2::train
