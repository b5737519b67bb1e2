// Decodes UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rooflm::core {

/// One character of a UTF-8 text.
struct Utf8Character {
  std::uint32_t code = 0;  ///< its code point
  std::size_t bytes = 0;   ///< its length; 0: invalid
};

/// The first character of `text`, which is not empty. Overlong forms, surrogates and code points above
/// U+10FFFF are invalid (RFC 3629).
Utf8Character first_character(std::string_view text);

}  // namespace rooflm::core
