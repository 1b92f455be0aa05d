// The connections that have not said yet what they want, in the order in which they came. Each has
// one place here, which the oldest gives up when there are too many.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/time.h"

namespace weft::verbs {

template <class T>
class HalfOpen {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return order_.size(); }
  [[nodiscard]] bool contains(const T* who) const { return places_.contains(who); }

  void add(std::shared_ptr<T> who, Instant since) {
    const T* key = who.get();
    places_.emplace(key, order_.insert(order_.end(), Entry{std::move(who), since}));
  }
  // Null: it has no place here.
  std::shared_ptr<T> remove(const T* who) {
    const auto place = places_.find(who);
    if (place == places_.end()) return nullptr;
    std::shared_ptr<T> out = std::move(place->second->who);
    order_.erase(place->second);
    places_.erase(place);
    return out;
  }
  std::vector<std::shared_ptr<T>> remove_all() {
    std::vector<std::shared_ptr<T>> out;
    for (Entry& entry : order_) out.push_back(std::move(entry.who));
    order_.clear();
    places_.clear();
    return out;
  }

  // Null and never(): there is none.
  [[nodiscard]] std::shared_ptr<T> oldest() const {
    return order_.empty() ? nullptr : order_.front().who;
  }
  [[nodiscard]] Instant oldest_since() const {
    return order_.empty() ? Instant::never() : order_.front().since;
  }

 private:
  struct Entry {
    std::shared_ptr<T> who;
    Instant since;
  };
  std::list<Entry> order_;
  std::unordered_map<const T*, typename std::list<Entry>::iterator> places_;
};

}  // namespace weft::verbs
