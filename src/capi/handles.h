#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace sape2::capi {

/// A number that no handle of any kind had before. Small and odd: whoever follows it as an address
/// meets the first page, where nothing lies.
inline std::uintptr_t next_handle() {
  static std::atomic<std::uintptr_t> last = 1;
  return last += 2;
}

/// What C programs hold is a number that is never given out again, so that a handle that was freed,
/// or is one of another kind, is recognised without a look at memory that may be somebody else's by
/// now.
template <class Object>
class Handles {
 public:
  /// Of the process; never destroyed, because threads may outlive main().
  static Handles& all() {
    static auto* handles = new Handles;
    return *handles;
  }

  std::uintptr_t insert(std::shared_ptr<Object> object) {
    const std::uintptr_t number = next_handle();
    const std::lock_guard lock(mutex_);
    objects_.emplace(number, std::move(object));
    return number;
  }

  /// Null if there is no such object (any more).
  std::shared_ptr<Object> find(std::uintptr_t number) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(number);
    return found == objects_.end() ? nullptr : found->second;
  }

  /// The object, which the caller now holds alone; null if there is none.
  std::shared_ptr<Object> take(std::uintptr_t number) {
    const std::lock_guard lock(mutex_);
    const auto node = objects_.extract(number);
    return node.empty() ? nullptr : std::move(node.mapped());
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uintptr_t, std::shared_ptr<Object>> objects_;
};

}  // namespace sape2::capi
