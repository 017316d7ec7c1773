#pragma once

#include "sape2/base/error.h"

#include <sys/eventfd.h>
#include <unistd.h>

namespace sape2::serve {

/// Something that happens once, as a file descriptor: poll() can wait for it and for a socket at
/// the same time.
class Event {
 public:
  Event() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (descriptor_ < 0) throw Error("too many files are open to answer another client");
  }
  ~Event() { ::close(descriptor_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// The descriptor is readable from now on, until clear().
  void set() noexcept { ::eventfd_write(descriptor_, 1); }
  void clear() noexcept {
    eventfd_t count = 0;
    ::eventfd_read(descriptor_, &count);
  }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace sape2::serve
