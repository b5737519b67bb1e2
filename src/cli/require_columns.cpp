// Checks names of columns before anything is measured.
#include <fmt/format.h>

#include <algorithm>

#include "cli/column_names.h"
#include "core/error.h"
#include "core/names.h"

namespace rooflm::cli {
namespace {

/// `pattern` has one "*" at the most.
bool matches(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  const std::string_view end = pattern.substr(star + 1);
  return name.size() >= pattern.size() - 1 && name.starts_with(pattern.substr(0, star)) &&
         name.ends_with(end);
}

}  // namespace

void require_column_names(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto is_it = [&](std::string_view pattern) { return matches(pattern, name); };
    if (std::ranges::any_of(column_names(), is_it)) continue;
    const std::vector<std::string> known(column_names().begin(), column_names().end());
    const std::string nearest = core::nearest_name(name, known);
    throw core::UsageError(fmt::format(
        "unknown column '{}'; {}", name,
        nearest.empty() ? "no table has one of that name" : fmt::format("did you mean '{}'?", nearest)));
  }
}

}  // namespace rooflm::cli
