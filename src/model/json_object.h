// Parsing a JSON object out of an input file (for this room's sources, not for its public headers).
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace rooflm::model {

/// Parses `text`, which comes from the file `path` and is called `what` in messages ("the header"). Throws
/// core::InputError that names the file and the byte when it is no JSON object, and when the outermost object
/// has the same name twice, which a parser would drop silently.
nlohmann::json parse_json_object(const std::filesystem::path& path, std::string_view text, const char* what);

}  // namespace rooflm::model
