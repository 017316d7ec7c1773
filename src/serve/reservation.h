#pragma once

#include <atomic>
#include <cstddef>

namespace sape2::serve {

/// Bytes that one body or answer takes, while it lives, of what all together may.
class Reservation {
 public:
  Reservation(std::atomic<std::size_t>& used, std::size_t bytes, std::size_t most)
      : used_(used), bytes_(bytes), granted_(used.fetch_add(bytes) + bytes <= most) {}
  ~Reservation() { used_ -= bytes_; }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  bool granted() const { return granted_; }

 private:
  std::atomic<std::size_t>& used_;
  std::size_t bytes_;
  bool granted_;
};

}  // namespace sape2::serve
