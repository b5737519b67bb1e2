// Looks up a name in a list and suggests a similar one if it is not there.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::core {

/// The first candidate that begins with `name`, or the one with the smallest edit distance (Levenshtein). ""
/// if none is near: within a third of the name's length, at least 2.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

/// "unknown model 'gtp2'; did you mean 'gpt2'? (known: gpt2, tiny)". `what` is the kind of thing. An
/// ambiguous prefix lists all matches ("'comm', 'compare' or 'completion'"). A long list of known names is
/// omitted if there is a suggestion.
std::string unknown_name(std::string_view what, std::string_view name,
                         std::span<const std::string> candidates);

}  // namespace rooflm::core
