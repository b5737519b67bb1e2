// Checks names of columns before anything is measured.
#include <fmt/format.h>

#include <algorithm>

#include "cli/column_names.h"
#include "core/error.h"
#include "core/names.h"
#include "core/printable.h"

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

constexpr std::string_view kAll = "all";

/// Whether the columns of a view are named by what was recorded.
bool is_open(std::string_view view) {
  return view == "cells" || view == "serving" || view.starts_with("plan");
}

}  // namespace

std::vector<std::string> groups_of_views(std::span<const std::string> views) {
  if (std::ranges::any_of(views, is_open)) return {std::string(kAll)};
  return {views.begin(), views.end()};
}

void require_column_names(std::span<const std::string> names, std::span<const std::string> groups) {
  std::vector<std::string> known;
  for (const ColumnGroup& group : column_groups()) {
    if (std::ranges::find(groups, group.of) == groups.end()) continue;
    known.insert(known.end(), group.names.begin(), group.names.end());
  }
  for (const std::string& name : names) {
    const auto is_it = [&](std::string_view pattern) { return matches(pattern, name); };
    if (std::ranges::any_of(known, is_it)) continue;
    const std::string nearest = core::nearest_name(name, known);
    throw core::UsageError(fmt::format("unknown column '{}'; {}", core::printable(name),
                                       nearest.empty() ? "no table of this command has one of that name"
                                                       : fmt::format("did you mean '{}'?", nearest)));
  }
}

}  // namespace rooflm::cli
