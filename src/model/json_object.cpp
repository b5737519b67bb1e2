// Parsing a JSON object out of an input file.
#include "model/json_object.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "core/error.h"

namespace rooflm::model {

using core::InputError;
using nlohmann::json;

json parse_json_object(const std::filesystem::path& path, std::string_view text, const char* what) {
  std::set<std::string> names;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1 && !names.insert(parsed.get<std::string>()).second) {
      throw InputError(fmt::format("{}: {} names {} twice", path.string(), what, parsed.get<std::string>()));
    }
    return true;
  };
  json root;
  try {
    root = json::parse(text.begin(), text.end(), check);
  } catch (const json::parse_error& error) {
    throw InputError(fmt::format("{}: {} is not valid JSON at byte {} of {}", path.string(), what, error.byte,
                                 text.size()));
  } catch (const json::exception&) {
    throw InputError(fmt::format("{}: {} holds a number that is too large", path.string(), what));
  }
  if (!root.is_object()) {
    throw InputError(fmt::format("{}: {} is not a JSON object", path.string(), what));
  }
  return root;
}

}  // namespace rooflm::model
