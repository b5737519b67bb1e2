// The parameters of an op: a handful of named numbers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rooflm::program {

/// Named numbers of one op ("heads" = 12, "eps" = 1e-5). Names are string literals. Few entries: a linear
/// search is faster than a map. Integers are exact up to 2^53.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string_view, double>> entries) : entries_(entries) {}

  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  /// The value; std::logic_error when absent, since an op's builder sets what its kernels read.
  [[nodiscard]] double number(std::string_view name) const {
    const double* value = find(name);
    if (value == nullptr) throw std::logic_error("op lacks the attribute " + std::string(name));
    return *value;
  }
  [[nodiscard]] std::int64_t integer(std::string_view name) const {
    return static_cast<std::int64_t>(number(name));
  }
  /// True when present and not zero.
  [[nodiscard]] bool flag(std::string_view name) const {
    const double* value = find(name);
    return value != nullptr && *value != 0;
  }
  void set(std::string_view name, double value) {
    for (auto& entry : entries_) {
      if (entry.first == name) {
        entry.second = value;
        return;
      }
    }
    entries_.emplace_back(name, value);
  }
  [[nodiscard]] const std::vector<std::pair<std::string_view, double>>& entries() const { return entries_; }
  bool operator==(const Attributes&) const = default;

 private:
  [[nodiscard]] const double* find(std::string_view name) const {
    for (const auto& entry : entries_) {
      if (entry.first == name) return &entry.second;
    }
    return nullptr;
  }
  std::vector<std::pair<std::string_view, double>> entries_;
};

}  // namespace rooflm::program
