#include "capi/status.h"

#include "sape2/base/in_quotes.h"
#include "sape2/infer/prediction.h"

#include <exception>
#include <new>

namespace sape2::capi {
namespace {

constexpr const char* kNoMemory = "there is not enough memory";

// Text that is always there stands beside the string: keeping a sentence may fail, too.
struct LastFailure {
  std::string text;
  const char* shown = "";
};

LastFailure& last_failure() {
  thread_local LastFailure last;
  return last;
}

}  // namespace

sape2_infer_status failed(sape2_infer_status status, const char* sentence) noexcept {
  LastFailure& last = last_failure();
  try {
    last.text = printable(sentence);
    last.shown = last.text.c_str();
  } catch (...) {
    last.shown = kNoMemory;
  }
  return status;
}

const char* last_sentence() noexcept {
  return last_failure().shown;
}

sape2_infer_status failed_by_exception(sape2_infer_status usual) noexcept {
  try {
    throw;
  } catch (const Failure& failure) {
    return failed(failure.status(), failure.what());
  } catch (const infer::NotFinite& error) {
    return failed(SAPE2_INFER_NOT_FINITE, error.what());
  } catch (const Error& error) {
    return failed(usual, error.what());
  } catch (const std::bad_alloc&) {
    last_failure().shown = kNoMemory;
    return SAPE2_INFER_NO_MEMORY;
  } catch (const std::exception& error) {
    return failed(SAPE2_INFER_INTERNAL, error.what());
  } catch (...) {
    return failed(SAPE2_INFER_INTERNAL, "an unknown failure");
  }
}

}  // namespace sape2::capi
