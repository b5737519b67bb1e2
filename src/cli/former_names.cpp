// Options that were renamed.
#include "cli/former_names.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace rooflm::cli {
namespace {

constexpr auto kRenamed = std::to_array<std::pair<std::string_view, std::string_view>>({
    // former, present
    {"search-products", "autotune"},
});

}  // namespace

std::string present_name(const std::string& option) {
  const auto* const found =
      std::ranges::find(kRenamed, option, &std::pair<std::string_view, std::string_view>::first);
  return found == kRenamed.end() ? option : std::string(found->second);
}

std::string present_argument(const std::string& argument) {
  if (!argument.starts_with("--")) return argument;
  const auto equals = argument.find('=');
  const std::string value = equals == std::string::npos ? "" : argument.substr(equals);
  return "--" + present_name(argument.substr(2, equals == std::string::npos ? equals : equals - 2)) + value;
}

}  // namespace rooflm::cli
