// The names of an enumeration's values, written once: to print them, to parse them, to list them.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/names.h"

namespace rooflm::core {

/// `what` is the kind of thing, as messages call it: "engine".
template <class Enum, std::size_t N>
class Named {
 public:
  using Rows = std::array<std::pair<Enum, std::string_view>, N>;
  constexpr Named(std::string_view what, const Rows& rows) : what_(what), rows_(rows) {}

  /// "?" for a value without a name.
  [[nodiscard]] constexpr std::string_view name(Enum value) const {
    for (const auto& [known, text] : rows_) {
      if (known == value) return text;
    }
    return "?";
  }
  /// Throws UsageError with a suggestion.
  [[nodiscard]] Enum parse(std::string_view name) const {
    for (const auto& [known, text] : rows_) {
      if (text == name) return known;
    }
    throw UsageError(unknown_name(what_, name, names()));
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& row : rows_) all.emplace_back(row.second);
    return all;
  }

 private:
  std::string_view what_;
  Rows rows_;
};

template <class Enum, std::size_t N>
constexpr Named<Enum, N> named(std::string_view what, const std::pair<Enum, std::string_view> (&rows)[N]) {
  return {what, std::to_array(rows)};
}

/// An enumeration, or another value, whose namespace names its values beside its definition:
/// `constexpr auto names_of(Engine) { return core::named<Engine>("engine", {{Engine::eager, "eager"}, ..});
/// }`
template <class Enum>
concept HasNames = requires(const Enum& value) {
  names_of(value).name(value);
};

template <HasNames Enum>
constexpr std::string_view name_of(const Enum& value) {
  constexpr auto kNames = names_of(Enum{});
  return kNames.name(value);
}

/// Throws UsageError with a suggestion.
template <HasNames Enum>
Enum parse(std::string_view name) {
  return names_of(Enum{}).parse(name);
}

}  // namespace rooflm::core
