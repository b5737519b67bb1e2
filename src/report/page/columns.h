// Columnar arrays of the document. For .cpp files only.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "report/page/json_parts.h"

namespace rooflm::report {

/// Texts of a columnar array: each once, referred to by index.
class Names {
 public:
  std::size_t index(const std::string& text) {
    const auto [entry, is_new] = index_.try_emplace(text, names_.size());
    if (is_new) names_.push_back(text);
    return entry->second;
  }
  [[nodiscard]] Json json() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::size_t> index_;
};

/// Columns that are filled row by row.
class Columns {
 public:
  /// Every column is there, even without rows.
  explicit Columns(std::initializer_list<const char*> keys) {
    for (const char* key : keys) columns_[key] = Json::array();
  }
  template <class Value>
  void push(const char* key, Value&& value) {
    columns_[key].push_back(std::forward<Value>(value));
  }
  [[nodiscard]] Json json(const Names* names) && {
    if (names != nullptr) columns_["names"] = names->json();
    return std::move(columns_);
  }

 private:
  Json columns_ = Json::object();
};

}  // namespace rooflm::report
