// Parses JSON from outside; the only place that does.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace rooflm::core {

/// Maximum nesting depth. Deeper text is refused, because walking, copying and printing values is recursive.
/// Real files have fewer than ten levels.
inline constexpr std::size_t kMostJsonDepth = 64;
/// The limit of safetensors headers; the largest tokenizers have a third of it.
inline constexpr std::size_t kMostJsonBytes = 100'000'000;

/// Parses `text` from `where` (a file, or a place in one); messages call it `what` ("the header"). Throws
/// core::InputError with both names, line and column, if it is not JSON, exceeds the limits above, or holds a
/// number outside the range of double.
nlohmann::json parse_json(std::string_view text, const std::string& where, std::string_view what);

/// The same for a text that must be an object. Refuses a duplicate key of the outermost object, which a
/// parser would silently drop.
nlohmann::json parse_json_object(std::string_view text, const std::string& where, std::string_view what);

/// The same of a file that Python's json wrote: NaN, Infinity and -Infinity, which JSON lacks, become texts,
/// so that whoever asks for a number there still says what it got.
nlohmann::json parse_python_json_object(std::string_view text, const std::string& where,
                                        std::string_view what);

/// The number of the first line of `text` that contains `key` in quotes; 1 if none does. For messages about
/// values parsed from `text`.
std::size_t line_of_key(std::string_view text, std::string_view key);

/// A value for a message: JSON on one line, truncated if long.
std::string shown(const nlohmann::json& value);

}  // namespace rooflm::core
