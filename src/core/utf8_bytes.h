// Arbitrary bytes as UTF-8 and back: file names may hold invalid UTF-8, but JSON holds only text.
#pragma once

#include <string>
#include <string_view>

namespace rooflm::core {

/// `bytes` if they are UTF-8. Each byte b that is not part of a valid character becomes the character
/// U+10FF00 + b of the private use area. Bytes of those characters themselves are escaped too, so the mapping
/// is unambiguous.
std::string bytes_as_utf8(std::string_view bytes);
/// The inverse: bytes_from_utf8(bytes_as_utf8(x)) == x for all x.
std::string bytes_from_utf8(std::string_view text);

}  // namespace rooflm::core
