// Any bytes as UTF-8 and back: file names may hold bytes that are no text, and JSON holds text only.
#pragma once

#include <string>
#include <string_view>

namespace rooflm::core {

/// `bytes` where they are UTF-8; each byte b that belongs to no character becomes the character U+10FF00 + b
/// of the private use area (and so does each byte of those characters themselves, so that nothing is
/// ambiguous).
std::string bytes_as_utf8(std::string_view bytes);
/// The inverse: bytes_from_utf8(bytes_as_utf8(x)) == x for all x.
std::string bytes_from_utf8(std::string_view text);

}  // namespace rooflm::core
