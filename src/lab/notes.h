// Progress and messages: lines on standard error.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace rooflm::lab {

/// One line, or several, on standard error, at once, after what standard output holds. Control characters
/// become escapes.
void write_note(std::string_view line);

template <class... Args>
void note(fmt::format_string<Args...> format, Args&&... args) {
  write_note(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace rooflm::lab
