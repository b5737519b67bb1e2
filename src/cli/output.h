// What goes to standard output (results) and to standard error (progress).
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace rooflm::cli {

/// Thrown when the reader of standard output has gone away: not an error, there is nobody left to tell.
struct OutputClosed {};

/// Writes to standard output. Throws OutputClosed when it is a closed pipe, core::InputError for other
/// failures (a full disk).
void write_out(std::string_view text);
/// Writes what is still buffered; throws as write_out does. Called once, before the exit.
void flush_out();

/// One line on standard error, at once.
void write_note(std::string_view line);

template <class... Args>
void note(fmt::format_string<Args...> format, Args&&... args) {
  write_note(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace rooflm::cli
