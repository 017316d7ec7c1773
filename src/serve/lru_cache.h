#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace sape2::serve {

/// Things by key, together no larger than a number of bytes: those not used for longest go first.
/// The newest stays whatever its size. For any number of threads; what is taken out is shared.
template <typename Value>
class LruCache {
 public:
  explicit LruCache(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  /// The thing of that key, or null.
  std::shared_ptr<Value> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->value;
  }

  void put(const std::string& key, std::shared_ptr<Value> value, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    remove(key);
    entries_.push_front({key, std::move(value), bytes});
    index_[key] = entries_.begin();
    bytes_ += bytes;
    while (bytes_ > most_bytes_ && entries_.size() > 1) remove(std::string(entries_.back().key));
  }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }
  std::size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<Value> value;
    std::size_t bytes;
  };

  void remove(const std::string& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return;
    bytes_ -= found->second->bytes;
    entries_.erase(found->second);
    index_.erase(found);
  }

  const std::size_t most_bytes_;
  mutable std::mutex mutex_;
  std::size_t bytes_ = 0;
  std::list<Entry> entries_;
  std::map<std::string, typename std::list<Entry>::iterator> index_;
};

}  // namespace sape2::serve
