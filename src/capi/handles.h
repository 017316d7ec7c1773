#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace sape2::capi {

/// What C programs hold is a number that is never given out again, so that a handle that was freed
/// is recognised without a look at memory that may be somebody else's by now.
template <class Object>
class Handles {
 public:
  /// Of the process; never destroyed, because threads may outlive main().
  static Handles& all() {
    static auto* handles = new Handles;
    return *handles;
  }

  std::uintptr_t insert(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    next_ += kStep;
    objects_.emplace(next_, std::move(object));
    return next_;
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
  // Small and odd: whoever follows it as an address meets the first page, where nothing lies.
  static constexpr std::uintptr_t kStep = 2;

  mutable std::mutex mutex_;
  std::unordered_map<std::uintptr_t, std::shared_ptr<Object>> objects_;
  std::uintptr_t next_ = 1;
};

}  // namespace sape2::capi
