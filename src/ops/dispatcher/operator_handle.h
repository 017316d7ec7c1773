#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <type_traits>

namespace sape2::ops {

/// A typed handle of a registered operator; `Kernel` gives its signature. Looking one up takes a
/// while: keep it.
template <auto Kernel>
auto operator_handle(const char* name) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .template typed<std::remove_pointer_t<decltype(Kernel)>>();
}

}  // namespace sape2::ops
