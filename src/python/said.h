#pragma once

#include "sape2/base/error.h"

#include <c10/util/Exception.h>

#include <utility>

namespace sape2::python {

/// Calls `work`; an Error's sentence becomes Python's ValueError.
template <class Work>
auto said(Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const Error& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

}  // namespace sape2::python
