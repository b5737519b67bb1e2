// The one place where JSON from outside is parsed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace rooflm::core {

/// Values within values: deeper text is refused, because whoever walks, copies or prints a value does so
/// recursively. Files that people and tools write have fewer than ten levels.
inline constexpr std::size_t kMostJsonDepth = 64;
/// The limit that safetensors sets its headers; the largest tokenizers have a third of it.
inline constexpr std::size_t kMostJsonBytes = 100'000'000;

/// Parses `text`, which comes from `where` (a file, or a file and a place in it) and is called `what` in
/// messages ("the header"). Throws core::InputError that names both, with line and column, when it is no
/// JSON, is deeper or longer than the limits above, or holds a number that no double holds.
nlohmann::json parse_json(std::string_view text, const std::string& where, std::string_view what);

/// The same for a text that must be an object. A name that the outermost object has twice, which a parser
/// would drop silently, is refused.
nlohmann::json parse_json_object(std::string_view text, const std::string& where, std::string_view what);

/// The number of the line of `text` on which `key` stands first, in quotes; 1 when nowhere. For
/// messages about values that were parsed from `text`.
std::size_t line_of_key(std::string_view text, std::string_view key);

/// A value for a message: as JSON, on one line, cut where it is long.
std::string shown(const nlohmann::json& value);

}  // namespace rooflm::core
