// Whoever loads the operators, a program or Python, gets the settings that this CPU needs.

#include "sape2/base/start_up.h"

namespace sape2::ops {
namespace {

const bool settled = [] {
  base::settle_environment();
  base::settle_blas();
  return true;
}();

}  // namespace
}  // namespace sape2::ops
