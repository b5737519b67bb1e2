// Devices and links that are faster or larger than those of the catalog.
#include "perfmodel/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/names.h"

namespace rooflm::perfmodel {
namespace {

constexpr std::pair<const char*, double WhatIf::*> kFactors[] = {
    {"compute", &WhatIf::compute}, {"bandwidth", &WhatIf::bandwidth}, {"link", &WhatIf::link},
    {"network", &WhatIf::network}, {"memory", &WhatIf::memory},       {"host", &WhatIf::host}};

constexpr double kLeast = 1e-3;
constexpr double kMost = 1e3;

void parse_factor(std::string_view part, WhatIf& what_if) {
  const std::size_t equals = part.find('=');
  std::string_view number = equals == std::string_view::npos ? "" : part.substr(equals + 1);
  if (number.ends_with('x')) number.remove_suffix(1);
  double factor = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), factor);
  const bool is_number = error == std::errc{} && end == number.data() + number.size() && !number.empty();
  if (!is_number || !(factor >= kLeast && factor <= kMost)) {
    throw core::UsageError(fmt::format(
        "--what-if '{}': expected KEY=FACTORx, such as bandwidth=2x, from {} to {}", part, kLeast, kMost));
  }
  std::vector<std::string> known;
  for (const auto& [name, member] : kFactors) {
    if (name == part.substr(0, equals)) {
      what_if.*member = factor;
      return;
    }
    known.emplace_back(name);
  }
  throw core::UsageError(core::unknown_name("--what-if", part.substr(0, equals), known));
}

}  // namespace

std::vector<std::string> what_if_words() {
  std::vector<std::string> words;
  for (const auto& [name, member] : kFactors) words.push_back(fmt::format("{}=2x", name));
  return words;
}

WhatIf parse_what_if(std::string_view text) {
  WhatIf what_if;
  std::vector<std::string_view> given;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const std::string_view key = part.substr(0, part.find('='));
    parse_factor(part, what_if);
    if (std::ranges::find(given, key) != given.end())
      throw core::UsageError(fmt::format("--what-if '{}': {} is given twice", text, key));
    given.push_back(key);
    begin = end + 1;
  }
  return what_if;
}

std::string text_of(const WhatIf& what_if) {
  std::string text;
  for (const auto& [name, member] : kFactors) {
    if (what_if.*member == 1) continue;
    text += fmt::format("{}{}={}x", text.empty() ? "" : ",", name, what_if.*member);
  }
  return text;
}

}  // namespace rooflm::perfmodel
