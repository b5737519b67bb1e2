// The parameters of an op: a few named values.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace rooflm::program {

/// One parameter: an integer, a real number or a flag.
using AttributeValue = std::variant<std::int64_t, double, bool>;

/// Named values of one op ("heads" = 12, "eps" = 1e-5, "accumulate" = true). Names are string literals. A
/// linear search over so few entries is faster than a map. Reading a value that is absent or of another type
/// throws std::logic_error: the op's builder must set what its kernels read.
class Attributes {
 public:
  using Entry = std::pair<std::string_view, AttributeValue>;

  Attributes() = default;
  Attributes(std::initializer_list<Entry> entries) : entries_(entries) {}

  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  [[nodiscard]] std::int64_t integer(std::string_view name) const { return get<std::int64_t>(name); }
  [[nodiscard]] double number(std::string_view name) const { return get<double>(name); }
  /// False if absent.
  [[nodiscard]] bool flag(std::string_view name) const { return has(name) && get<bool>(name); }
  void set(std::string_view name, AttributeValue value) {
    for (Entry& entry : entries_) {
      if (entry.first == name) {
        entry.second = value;
        return;
      }
    }
    entries_.emplace_back(name, value);
  }
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  bool operator==(const Attributes&) const = default;

 private:
  [[nodiscard]] const AttributeValue* find(std::string_view name) const {
    for (const Entry& entry : entries_) {
      if (entry.first == name) return &entry.second;
    }
    return nullptr;
  }
  template <class T>
  [[nodiscard]] T get(std::string_view name) const {
    const AttributeValue* value = find(name);
    if (value == nullptr) throw std::logic_error("op lacks the attribute " + std::string(name));
    const T* typed = std::get_if<T>(value);
    if (typed == nullptr) throw std::logic_error("attribute of another type: " + std::string(name));
    return *typed;
  }
  std::vector<Entry> entries_;
};

}  // namespace rooflm::program
