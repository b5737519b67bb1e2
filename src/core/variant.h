// A variant with texts that may be copied where memory runs out.
#pragma once

#include <type_traits>
#include <utility>
#include <variant>

namespace rooflm::core {

/// As std::variant, of types that std::string is one of. When a copy of a std::variant runs out of memory,
/// libstdc++ 12 destroys a string that was never made: it takes variants of strings for never valueless.
template <class... Types>
class Variant : public std::variant<Types...> {
 public:
  using Base = std::variant<Types...>;
  using Base::Base;
  using Base::operator=;

  Variant() = default;
  Variant(const Variant& other) : Base() {
    std::visit([this](const auto& value) { this->template emplace<std::decay_t<decltype(value)>>(value); },
               static_cast<const Base&>(other));
  }
  Variant(Variant&& other) noexcept = default;
  Variant& operator=(const Variant& other) {
    if (this != &other) *this = Variant(other);
    return *this;
  }
  Variant& operator=(Variant&& other) noexcept = default;
  ~Variant() = default;
};

}  // namespace rooflm::core
