// Looking a name up in a list, with a suggestion when it is not there.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::core {

/// The first candidate that begins with `name`, or the one with the smallest edit distance (Levenshtein), or
/// "" when none is near: further than a third of the name's length, at least 2.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

/// "unknown model 'gtp2'; did you mean 'gpt2'? (known: gpt2, tiny)". `what` names the kind of thing. Of a
/// beginning, all that it may be ("'comm', 'compare' or 'completion'"); the list is left out where it is long
/// and there is a suggestion.
std::string unknown_name(std::string_view what, std::string_view name,
                         std::span<const std::string> candidates);

}  // namespace rooflm::core
