// Objects that others depend on: a domain with regions, a CQ with QPs. An object with users is not
// destroyed, and one that is being destroyed gets no users. Any thread.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <utility>

namespace weft::ibverbs {

class Users {
 public:
  // One more. False once close() has succeeded.
  [[nodiscard]] bool add() {
    std::uint32_t now = count_.load();
    do {
      if (now == kClosed) return false;
    } while (!count_.compare_exchange_weak(now, now + 1));
    return true;
  }
  void remove() { count_.fetch_sub(1); }

  // The end of an object without users.   EBUSY: it has some. EINVAL: another thread was first.
  [[nodiscard]] int close() {
    std::uint32_t none = 0;
    if (count_.compare_exchange_strong(none, kClosed)) return 0;
    return none == kClosed ? EINVAL : EBUSY;
  }

 private:
  static constexpr std::uint32_t kClosed = ~std::uint32_t{0};
  std::atomic<std::uint32_t> count_{0};
};

// Counts as a user of an object, from take() to reset().
template <class T>
class Using {
 public:
  Using() = default;
  ~Using() { reset(); }
  Using(Using&& other) noexcept : object_(std::move(other.object_)) {}
  Using& operator=(Using&& other) noexcept {
    if (this != &other) {
      reset();
      object_ = std::move(other.object_);
    }
    return *this;
  }
  Using(const Using&) = delete;
  Using& operator=(const Using&) = delete;

  // False, and nothing changed, when `object` is being destroyed.
  [[nodiscard]] bool take(std::shared_ptr<T> object) {
    if (!object->users.add()) return false;
    reset();
    object_ = std::move(object);
    return true;
  }
  void reset() {
    if (object_ != nullptr) object_->users.remove();
    object_.reset();
  }

  explicit operator bool() const { return object_ != nullptr; }
  T* operator->() const { return object_.get(); }
  T& operator*() const { return *object_; }

 private:
  std::shared_ptr<T> object_;
};

}  // namespace weft::ibverbs
