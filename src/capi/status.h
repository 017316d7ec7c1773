#pragma once

#include "sape2/base/error.h"

#include "sape2_infer.h"

#include <string>

namespace sape2::capi {

/// A failure with its code; a plain Error is given one by the function that meets it.
class Failure : public Error {
 public:
  Failure(sape2_infer_status status, const std::string& sentence)
      : Error(sentence), status_(status) {}
  sape2_infer_status status() const { return status_; }

 private:
  sape2_infer_status status_;
};

/// Keeps a sentence for the calling thread, and returns the code.
sape2_infer_status failed(sape2_infer_status status, const char* sentence) noexcept;

/// The sentence that the calling thread's last failure left.
const char* last_sentence() noexcept;

/// The code and the sentence of the exception that is being handled; `usual` is the code of a plain
/// Error.
sape2_infer_status failed_by_exception(sape2_infer_status usual) noexcept;

/// Runs `work` and turns whatever it throws into a code and a sentence.
template <class Work>
sape2_infer_status guarded(sape2_infer_status usual, const Work& work) noexcept {
  try {
    work();
    return SAPE2_INFER_OK;
  } catch (...) {
    return failed_by_exception(usual);
  }
}

/// Throws if an argument is null.
inline void check_given(const void* argument, const char* name) {
  if (argument == nullptr) {
    throw Failure(SAPE2_INFER_BAD_ARGUMENT, std::string("the argument ") + name + " is null");
  }
}

/// Throws if a struct does not begin with its size.
template <class Struct>
void check_struct(const Struct* given, const char* name, std::size_t least = sizeof(Struct)) {
  constexpr std::size_t kMost = std::size_t{1} << 16;
  check_given(given, name);
  const std::size_t size = given->struct_size;
  // In an array they lie one behind the other.
  if (size < least || size > kMost || size % alignof(Struct) != 0) {
    throw Failure(SAPE2_INFER_BAD_ARGUMENT,
                  std::string("the struct_size of ") + name + " is " + std::to_string(size) +
                      ", expected " + std::to_string(least) +
                      ": begin with the macro SAPE2_INFER_…_INIT of its type");
  }
}

}  // namespace sape2::capi
