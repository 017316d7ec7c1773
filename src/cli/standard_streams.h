#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace sape2::cli {

/// A standard stream that is closed would be the number of the next file that is opened, and what
/// is meant for the terminal would land in a log or a model.
inline void open_standard_streams() {
  int descriptor = 0;
  do {
    descriptor = ::open("/dev/null", O_RDWR);
  } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  if (descriptor > STDERR_FILENO) ::close(descriptor);
}

}  // namespace sape2::cli
