// Looks up a name in a list and suggests a similar one if it is not there.
#include "core/names.h"

#include <algorithm>
#include <numeric>

#include "core/printable.h"

namespace rooflm::core {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

/// Whether `name` is a prefix: "prof" of "profile", "h100" of "h100-sxm".
bool is_beginning(std::string_view name, const std::string& candidate) {
  return name.size() > 1 && candidate.starts_with(name);
}

/// All candidates that begin with it, if they are few; otherwise the nearest.
std::vector<std::string> near_names(std::string_view name, std::span<const std::string> candidates) {
  constexpr std::size_t kFew = 4;
  std::vector<std::string> names;
  for (const std::string& candidate : candidates) {
    if (is_beginning(name, candidate)) names.push_back(candidate);
  }
  if (names.size() > 1 && names.size() <= kFew) return names;
  names.assign(1, nearest_name(name, candidates));
  if (names.front().empty()) names.clear();
  return names;
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  if (name.size() > kMostShown) return best;  // too long for a misspelling
  const auto begins = [&](const std::string& candidate) { return is_beginning(name, candidate); };
  const auto found = std::ranges::find_if(candidates, begins);
  if (found != candidates.end()) return *found;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string unknown_name(std::string_view what, std::string_view name,
                         std::span<const std::string> candidates) {
  std::string text = "unknown " + std::string(what) + " '" + printable(name) + "'";
  const std::vector<std::string> near = near_names(name, candidates);
  for (std::size_t i = 0; i < near.size(); ++i) {
    const bool is_last = i + 1 == near.size();
    text += (i == 0 ? "; did you mean '" : is_last ? " or '" : ", '") + near[i] + (is_last ? "'?" : "'");
  }
  constexpr std::size_t kManyNames = 60;
  if (!near.empty() && candidates.size() > kManyNames) return text;  // too many to list
  text += " (known:";
  for (const auto& candidate : candidates) text += " " + candidate;
  return text + ")";
}

}  // namespace rooflm::core
