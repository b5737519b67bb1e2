// Values by key, in the order in which the keys first came.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace rooflm::core {

template <class Key, class Value>
class Grouped {
 public:
  /// The value of `key`. `make` makes a new one.
  template <class Make>
  Value& at(const Key& key, Make make) {
    const auto [entry, is_new] = index_.try_emplace(key, values_.size());
    if (is_new) values_.push_back(make());
    return values_[entry->second];
  }
  [[nodiscard]] std::vector<Value>& values() { return values_; }

 private:
  std::map<Key, std::size_t> index_;
  std::vector<Value> values_;
};

}  // namespace rooflm::core
